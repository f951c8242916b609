"""The index of runs: complete, incremental, and rebuilt when it cannot be used."""

from __future__ import annotations

import os
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


def test_every_run_is_found_and_damage_is_told(runs: Path) -> None:
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


def test_a_file_replaced_by_one_of_equal_size_and_time_is_noticed(runs: Path, reads: list[str]) -> None:
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
def test_a_damaged_index_is_made_again(runs: Path, tmp_path: Path, content: bytes, reads: list[str]) -> None:
    file = tmp_path / "index.sqlite"
    expected = paths(RunIndex(runs, file))
    file.write_bytes(content)
    assert paths(RunIndex(runs, file)) == expected
    reads.clear()
    assert paths(RunIndex(runs, file)) == expected
    assert reads == []


def test_an_index_of_another_layout_is_made_again(
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
