"""Tags and notes in their file: none is lost, and no other file is written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fedge.core.errors import ConfigError, StorageError
from fedge.view.notes import NOTES, Notes, RunNote, read_note
from mutations import watched


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def stored(folder: Path) -> object:
    return json.loads((folder / NOTES).read_text())


def test_notes_are_kept_beside_each_other_and_removed_when_empty(folder: Path) -> None:
    notes = Notes(folder)
    notes.write("a", RunNote(("good",), "text"))
    notes.write("b", RunNote(note="more"))
    assert Notes(folder).read() == {"a": RunNote(("good",), "text"), "b": RunNote(note="more")}
    notes.write("a", RunNote())
    assert Notes(folder).read() == {"b": RunNote(note="more")}
    assert stored(folder) == {"b": {"tags": [], "note": "more"}}


def test_a_file_that_another_process_wrote_is_read_again(folder: Path) -> None:
    notes = Notes(folder)
    assert notes.read() == {}
    (folder / NOTES).write_text('{"a": {"note": "x"}}')
    found = notes.read()
    assert found == {"a": RunNote(note="x")}
    assert notes.read() is found  # it has not changed
    (folder / NOTES).unlink()
    assert notes.read() == {}


@pytest.mark.parametrize(
    "content", [b"nonsense", b'{"a": {"tags": 1}}', b'{"a": {"other": 1}}', b"\xff\xfe", b'{"a":' * 5_000, b"[]"]
)
def test_a_damaged_file_is_not_overwritten(folder: Path, cache: Path, content: bytes) -> None:
    """The damaged file may still be repaired, so new notes are stored in the cache."""
    (folder / NOTES).write_bytes(content)
    notes = Notes(folder)
    assert notes.read() == {}
    notes.write("a", RunNote(note="x"))
    assert (folder / NOTES).read_bytes() == content
    assert notes.read() == Notes(folder).read() == {"a": RunNote(note="x")}
    (file,) = (cache / "fedge" / "view").glob("notes-*.json")
    assert len(file.stem) == len("notes-") + 16
    file.write_bytes(content)
    with pytest.raises(StorageError, match=r"notes-\w+\.json is damaged: .*; repair it or move it away"):
        notes.write("a", RunNote(note="y"))


def test_a_link_is_neither_read_nor_written(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text('{"a": {"note": "secret"}}')
    (folder / NOTES).symlink_to(tmp_path / "secret")
    notes = Notes(folder)
    assert notes.read() == {}
    notes.write("b", RunNote(note="x"))
    assert notes.read() == {"b": RunNote(note="x")}
    assert (tmp_path / "secret").read_text() == '{"a": {"note": "secret"}}'
    assert (folder / NOTES).is_symlink()


@pytest.mark.parametrize("make", [os.mkfifo, lambda file: (file.touch(), os.truncate(file, 1 << 40))])
def test_a_pipe_and_a_file_of_a_terabyte_are_not_read(folder: Path, make: Callable[[Path], object]) -> None:
    make(folder / NOTES)
    notes = Notes(folder)
    with watched():
        assert notes.read() == {}
        notes.write("a", RunNote(note="x"))
        assert notes.read() == {"a": RunNote(note="x")}
    assert (folder / NOTES).stat().st_size in (0, 1 << 40)


def test_folders_with_notes_in_the_cache_do_not_share_them(folder: Path, tmp_path: Path) -> None:
    others = tmp_path / "others"
    for each in (folder, others):
        each.mkdir(exist_ok=True)
        (each / NOTES).mkdir()  # cannot be written
        Notes(each).write("a", RunNote(note=each.name))
    assert [Notes(each).read()["a"].note for each in (folder, others)] == ["runs", "others"]


def test_a_note_in_the_cache_takes_precedence_over_the_folder(folder: Path) -> None:
    (folder / NOTES).mkdir()
    Notes(folder).write("a", RunNote(note="cache"))
    (folder / NOTES).rmdir()
    (folder / NOTES).write_text('{"a": {"note": "folder"}, "b": {"note": "other"}}')
    assert Notes(folder).read() == {"a": RunNote(note="cache"), "b": RunNote(note="other")}


def test_a_folder_that_is_gone_has_no_notes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert Notes(tmp_path / "nowhere").read() == Notes(tmp_path / "file").read() == {}


def body(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def test_typed_tags_and_notes_are_normalised() -> None:
    tidy = read_note(body(tags=[" b ", "a", "b", "  "], note=" line\nnext\x1b[2J \n"))
    assert tidy == RunNote(("b", "a"), "line\nnext\\u001b[2J")
    assert read_note(body(tags=["\u202ea"])).tags == ("\\u202ea",)
    assert read_note(b"{}") == RunNote()


def test_the_ends_of_ranges() -> None:
    assert len(read_note(body(tags=[f"{i:040}" for i in range(20)], note="x" * 4_000)).tags) == 20


@pytest.mark.parametrize(
    "data",
    [
        body(tags=["x" * 41]), body(tags=[""]), body(tags=[str(i) for i in range(21)]), body(note="x" * 4_001),
        body(other=1), b"", b"[]", b'{"note": "\xff"}', b'{"tags":' + b"[" * 5_000,
        body(tags=["\u202e" * 7]), body(note="\x1b" * 700),
    ],
)  # fmt: skip
def test_invalid_notes_are_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match=r'^expected \{"tags": \["\.\.\."\], "note": "\.\.\."\}, got another body'):
        read_note(data)


def test_a_note_beside_the_runs_replaces_that_in_the_cache(folder: Path) -> None:
    (folder / NOTES).mkdir()  # cannot be written
    notes = Notes(folder)
    for key in ("a", "b"):
        notes.write(key, RunNote(note="then"))
    (folder / NOTES).rmdir()
    notes.write("a", RunNote(note="now"))
    assert notes.read() == {"a": RunNote(note="now"), "b": RunNote(note="then")}
    notes.write("a", RunNote())
    assert notes.read() == {"b": RunNote(note="then")}
