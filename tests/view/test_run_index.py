"""The index of runs: complete, incremental, and rebuilt when it cannot be used."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.page_runs import make_run

from fedge.view import run_index
from fedge.view.run_index import IndexChange, RunIndex


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that are read, one after the other."""
    found: list[str] = []
    real = run_index.read_entry

    def noted(folder: Path, *rest: object) -> object:
        found.append(folder.name)
        return real(folder, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(run_index, "read_entry", noted)
    return found


def paths(index: RunIndex) -> list[str]:
    return [entry.path for entry in index.scan().values()]


def test_every_run_is_found_and_damage_is_reported(runs: Path) -> None:
    found = {entry.path: entry for entry in RunIndex(runs).scan().values()}
    assert sorted(found) == sorted(
        [f"rate-{rate}/seed-{seed}" for rate in (0.1, 0.3) for seed in (1, 2, 3)] + ["begun/seed-1", "broken/seed-1"]
    )
    problem = found["broken/seed-1"].problem
    assert problem is not None
    assert "rounds.jsonl is damaged" in problem
    assert str(runs) not in problem
    assert found["begun/seed-1"].summary is None
    assert found["begun/seed-1"].round == 4


def test_only_changed_runs_are_read_again(runs: Path, reads: list[str]) -> None:
    RunIndex(runs).scan()
    assert len(reads) == 8
    reads.clear()
    index = RunIndex(runs)
    before = index.scan()
    assert reads == []
    with (runs / "begun/seed-1/rounds.jsonl").open("a") as file:
        file.write('{"round": 5, "accuracy": 0.5}\n')
    change = IndexChange.between(before, index.scan())
    assert reads == ["seed-1"]
    assert [index.entries[key].path for key in change.changed] == ["begun/seed-1"]
    assert (change.added, change.removed) == ([], [])


def test_a_replaced_file_of_equal_size_and_time_is_detected(runs: Path, reads: list[str]) -> None:
    index = RunIndex(runs)
    index.scan()
    reads.clear()
    file = runs / "begun/seed-1/config.json"
    status, text = file.stat(), file.read_text()
    other = file.with_name("other")
    other.write_text(text.replace('"begun"', '"named"'))
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(other, file)
    assert next(entry for entry in index.scan().values() if "begun" in entry.path).name == "named"
    assert reads == ["seed-1"]


def test_new_and_removed_runs(runs: Path) -> None:
    index = RunIndex(runs)
    before = index.scan()
    make_run(runs / "new" / "seed-1")
    (runs / "begun").rename(runs / "moved")
    change = IndexChange.between(before, index.scan())
    assert sorted(index.entries[key].path for key in change.added) == ["moved/seed-1", "new/seed-1"]
    assert [before[key].path for key in change.removed] == ["begun/seed-1"]
    assert paths(RunIndex(runs)) == paths(index)


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\x00" + bytes(200)])
def test_a_damaged_index_is_rebuilt(runs: Path, tmp_path: Path, content: bytes, reads: list[str]) -> None:
    file = tmp_path / "index.sqlite"
    expected = paths(RunIndex(runs, file))
    file.write_bytes(content)
    assert paths(RunIndex(runs, file)) == expected
    reads.clear()
    assert paths(RunIndex(runs, file)) == expected
    assert reads == []


def test_an_index_of_another_layout_is_rebuilt(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[str]
) -> None:
    file = tmp_path / "index.sqlite"
    RunIndex(runs, file).scan()
    monkeypatch.setattr(run_index, "_LAYOUT", run_index._LAYOUT + 1)
    reads.clear()
    RunIndex(runs, file).scan()
    assert len(reads) == 8


def test_a_cache_that_cannot_be_written_costs_speed_only(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert len(RunIndex(runs, tmp_path / "file" / "index.sqlite").scan()) == 8


def test_symbolic_links_are_not_followed(runs: Path, tmp_path: Path) -> None:
    secret = make_run(tmp_path / "elsewhere" / "secret")
    (runs / "linked").symlink_to(secret)
    inside = make_run(runs / "inside")
    (inside / "rounds.jsonl").unlink()
    (inside / "rounds.jsonl").symlink_to(secret / "rounds.jsonl")
    found = {entry.path: entry for entry in RunIndex(runs).scan().values()}
    assert "linked" not in found
    assert "symbolic link" in (found["inside"].problem or "")


def test_names_that_are_not_utf_8(runs: Path) -> None:
    make_run(Path(os.fsdecode(os.fsencode(runs) + b"/\xff\xfe\x1b[2J")))
    index = RunIndex(runs)
    assert "\\udcff\\udcfe\\u001b[2J" in paths(index)
    assert paths(RunIndex(runs)) == paths(index)


def test_a_vanished_folder_has_no_runs(tmp_path: Path) -> None:
    assert RunIndex(tmp_path / "nowhere").scan() == {}


def test_repeats_are_a_folder_of_runs_not_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "repeated"
    config = json.loads((make_run(folder / "seed-1", 1) / "config.json").read_text())
    make_run(folder / "seed-2", 2)
    (folder / "config.json").write_text(json.dumps(config | {"seeds": [1, 2]}))
    assert paths(RunIndex(tmp_path / "runs")) == ["repeated/seed-1", "repeated/seed-2"]
    assert paths(RunIndex(tmp_path / "runs")) == ["repeated/seed-1", "repeated/seed-2"]  # as stored


def test_runs_below_a_damaged_one_are_found(runs: Path) -> None:
    (runs / "rate-0.1" / "config.json").write_text("nonsense")
    found = {entry.path: entry.problem for entry in RunIndex(runs).scan().values()}
    assert "config.json is damaged" in (found["rate-0.1"] or "")
    assert found["rate-0.1/seed-1"] is None


def test_a_run_inside_a_readable_run_is_not_listed(runs: Path) -> None:
    make_run(runs / "begun/seed-1/inner")
    assert "begun/seed-1/inner" not in paths(RunIndex(runs))


def test_hidden_folders_are_not_searched(runs: Path) -> None:
    make_run(runs / ".trash" / "seed-1")
    assert len(paths(RunIndex(runs))) == 8


def test_only_the_files_that_the_page_reads_must_be_regular(runs: Path) -> None:
    (runs / "begun/seed-1/own notes").symlink_to(runs)
    (runs / "begun/seed-1/checkpoint").mkdir()
    assert [entry.problem for entry in RunIndex(runs).scan().values() if "begun" in entry.path] == [None]


@pytest.mark.parametrize(("depth", "found"), [(40, 1), (41, 0)])
def test_folders_in_folders(tmp_path: Path, depth: int, found: int) -> None:
    make_run(tmp_path.joinpath("runs", *["d"] * depth))
    assert len(RunIndex(tmp_path / "runs").scan()) == found


def test_a_scan_without_changes_stores_nothing(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = RunIndex(runs)
    before = index.scan()
    monkeypatch.setattr(index, "connect", lambda: pytest.fail("the index was opened"))
    assert index.scan() is before


def test_the_index_forgets_removed_runs_and_is_private(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "below" / "index.sqlite"
    RunIndex(runs, file).scan()
    assert file.parent.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(runs / "rate-0.1")
    RunIndex(runs, file).scan()
    with closing(sqlite3.connect(file)) as database:
        folders = [os.fsdecode(folder) for (folder,) in database.execute("SELECT folder FROM runs")]
    assert sorted(folders) == sorted(paths(RunIndex(runs)))


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x91" * 5_000, b"\x80"])
def test_a_stored_entry_that_cannot_be_read(runs: Path, tmp_path: Path, data: bytes, reads: list[str]) -> None:
    file = tmp_path / "index.sqlite"
    RunIndex(runs, file).scan()
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE runs SET entry = ? WHERE folder = ?", (data, b"begun/seed-1"))
    reads.clear()
    assert len(RunIndex(runs, file).scan()) == 8
    assert reads
    reads.clear()
    RunIndex(runs, file).scan()
    assert reads == []


def test_a_run_that_cannot_be_stored_does_not_cost_the_others(runs: Path, reads: list[str]) -> None:
    """The index holds no integers of more than 64 bits."""
    file = runs / "begun/seed-1/config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"own": 2**70}))
    assert len(RunIndex(runs).scan()) == 8
    reads.clear()
    found = {entry.path: entry for entry in RunIndex(runs).scan().values()}
    assert reads == ["seed-1"]
    assert found["begun/seed-1"].settings["own"] == 2**70


def test_a_sweep_that_appears_later_is_noticed(runs: Path) -> None:
    index = RunIndex(runs)
    assert {entry.sweep for entry in index.scan().values()} == {None}
    (runs / "rate-0.1" / "sweep.json").write_text("{}")
    assert {entry.sweep for entry in index.scan().values()} == {None, b"rate-0.1"}
