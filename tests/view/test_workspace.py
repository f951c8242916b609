"""The state shared by request handlers: when it is refreshed, and what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from benchmarks.page_runs import make_run
from starlette.datastructures import QueryParams

from fedge.core.errors import ConfigError, RunError
from fedge.view import workspace
from fedge.view.selection import RunSelection
from fedge.view.workspace import Workspace


class Clock:
    """A clock that advances with each scan of the index."""

    def __init__(self, made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.takes_s, self.scans = 100.0, 0.0, 0
        scan = made.index.scan
        monkeypatch.setattr(workspace.time, "monotonic", lambda: self.now_s)

        def noted() -> object:
            self.scans += 1
            self.now_s += self.takes_s
            return scan()

        monkeypatch.setattr(made.index, "scan", noted)


def test_a_large_folder_is_scanned_less_often(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Workspace(runs)
    clock = Clock(made, monkeypatch)
    made.refresh()
    assert clock.scans == 1
    for step, scans in ((0.25, 1), (0.125, 1), (0.125, 2)):  # half a second later
        clock.now_s += step
        made.refresh()
        assert clock.scans == scans
    clock.now_s, clock.takes_s = 200.0, 2.0
    made.refresh()
    clock.now_s += 39.5
    made.refresh()
    assert clock.scans == 3
    clock.now_s += 0.5  # 20 times as long as the scan took
    made.refresh()
    assert clock.scans == 4


def test_an_unknown_run(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "_FRESH_S", 0.0)
    monkeypatch.setattr(workspace, "_SHARE", 0)
    made = Workspace(runs)
    made.refresh()
    (key,) = [key for key, entry in made.index.entries.items() if entry.path == "begun/seed-1"]
    assert made.folder(made.entry(key)) == runs / "begun/seed-1"
    shutil.rmtree(runs / "begun")
    with pytest.raises(RunError, match=r"no run with the key '\w{16}' in this folder: it was moved or removed"):
        made.entry(key)


def test_a_run_with_a_link_is_not_opened(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("")
    (runs / "begun/seed-1/events.jsonl").symlink_to(tmp_path / "secret")
    made = Workspace(runs)
    made.refresh()
    (entry,) = [entry for entry in made.index.entries.values() if entry.path == "begun/seed-1"]
    with pytest.raises(RunError, match=r"^begun/seed-1: events\.jsonl: expected a regular file, got a symbolic link"):
        made.folder(entry)


def test_too_many_runs_are_refused_and_not_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        make_run(tmp_path / f"s{seed}", seed, 1)
    made, everything = Workspace(tmp_path), RunSelection.parse(QueryParams(""))
    monkeypatch.setattr(workspace, "MOST_COMPARED", 4)
    assert len(made.compared(everything)[0]) == 4
    monkeypatch.setattr(workspace, "MOST_COMPARED", 3)
    with pytest.raises(
        ConfigError, match=r"^expected at most 3 runs to compare, got 4; select fewer with the search or a filter$"
    ):
        made.compared(everything)
    assert len(made.compared(RunSelection.parse(QueryParams("where=seed<3")))[0]) == 3
