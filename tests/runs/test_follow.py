"""Followers see each record once, and detect when records that they have seen are gone."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedge.core.errors import RunError
from fedge.runs import files
from fedge.runs.directory import RunDirectory
from fedge.runs.follow import Cursor, follow
from fedge.runs.read import Run

Record = dict[str, Any]


class Follower:
    """Collects the records of a run returned by `follow`."""

    def __init__(self, path: Path) -> None:
        self.path, self.records = path, list[Record]()
        self.cursor: Cursor | None = None
        self.num_restarts = 0

    def poll(self) -> list[Record]:
        found = follow(self.path, self.cursor)
        if found.restarted:
            self.records.clear()
            self.num_restarts += 1
        self.records += found.records
        self.cursor = found.cursor
        return found.records


def record(r: int, attempt: int = 0) -> Record:
    """Return a record. All have the same length, so a truncated log that grows again ends where it did."""
    return {"round": r, "attempt": attempt}


def make(path: Path, saved: int, last: int) -> None:
    """Make a run that was stopped after its last round, with a checkpoint of an earlier one."""
    with RunDirectory.create(path, {"name": "followed"}, {}) as run:
        for r in range(1, last + 1):
            run.append(record(r))
            if r == saved:
                run.save({"x": torch.zeros(1)}, {})


def test_every_record_is_seen_once(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, {}, {}) as run:
        follower = Follower(tmp_path)
        assert follower.poll() == []
        run.append(record(1))
        run.append(record(2))
        assert follower.poll() == [record(1), record(2)]
        assert follower.poll() == []
        with (tmp_path / "rounds.jsonl").open("ab") as file:
            file.write(b'{"round":3,"att')
            file.flush()
            assert follower.poll() == []
            file.write(b'empt":0}\n')
        assert follower.poll() == [record(3)]
        line = len(b'{"round":1,"attempt":0}\n')
        assert follower.cursor == (Run(tmp_path).id, 0, 3 * line)
        assert follower.num_restarts == 0


def test_a_restored_run_is_read_again(tmp_path: Path) -> None:
    make(tmp_path, saved=2, last=4)
    follower = Follower(tmp_path)
    follower.poll()
    with RunDirectory.open(tmp_path) as run:
        run.restore()
        run.append(record(3, attempt=1))
        run.append(record(4, attempt=1))
    assert follower.poll() == [record(1), record(2), record(3, attempt=1), record(4, attempt=1)]
    assert follower.num_restarts == 1
    assert follower.poll() == []
    assert follower.num_restarts == 1


def test_another_run_in_the_same_place_is_read_from_its_start(tmp_path: Path) -> None:
    make(tmp_path / "run", saved=1, last=2)
    follower = Follower(tmp_path / "run")
    follower.poll()
    (tmp_path / "run").rename(tmp_path / "away")
    make(tmp_path / "run", saved=1, last=2)
    assert follower.poll() == [record(1), record(2)]
    assert follower.num_restarts == 1
    (tmp_path / "run").rename(tmp_path / "gone")
    with pytest.raises(RunError, match="no run at"):
        follower.poll()


@pytest.mark.parametrize("offset", [-1, 5, 10**6])
def test_a_cursor_inside_a_line(tmp_path: Path, offset: int) -> None:
    """As after a power failure, which may undo appends since the last checkpoint."""
    make(tmp_path, saved=1, last=2)
    found = follow(tmp_path, Cursor(Run(tmp_path).id, 0, offset))
    assert found == ([record(1), record(2)], follow(tmp_path).cursor, True)


def test_a_run_from_before_ids_can_be_followed(tmp_path: Path) -> None:
    make(tmp_path, saved=1, last=2)
    (tmp_path / "config.json").write_text('{"format": 1}')
    follower = Follower(tmp_path)
    assert follower.poll() == [record(1), record(2)]
    assert follower.cursor is not None
    assert follower.cursor[:2] == (None, 0)
    with RunDirectory.open(tmp_path) as run:
        run.restore()
    assert follower.poll() == [record(1)]
    assert follower.num_restarts == 1


def resume(path: Path) -> None:
    """Train rounds 3 and 4 again."""
    with RunDirectory.open(path) as run:
        run.restore()
        run.append(record(3, attempt=1))
        run.append(record(4, attempt=1))


@pytest.mark.parametrize("known", [0, 2, 4])
def test_restored_while_a_follower_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: int) -> None:
    """The run is restored after the follower has read the generation, before it reads the records."""
    make(tmp_path, saved=2, last=4)
    whole = follow(tmp_path).cursor
    cursor = whole._replace(offset=whole.offset // 4 * known) if known else None
    read = files.read_config

    def read_then_resume(path: Path) -> Any:
        found = read(path)
        monkeypatch.undo()
        resume(path)
        return found

    monkeypatch.setattr(files, "read_config", read_then_resume)
    found = follow(tmp_path, cursor)
    assert found.records == Run(tmp_path).rounds
    assert found.restarted is (cursor is not None)


def test_followers_at_every_moment_of_a_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One follower that reads all the time, and for every moment one that reads then and at the end."""
    make(tmp_path, saved=2, last=4)
    eager, lazy = Follower(tmp_path), list[Follower]()

    def look() -> None:
        eager.poll()
        lazy.append(Follower(tmp_path))
        lazy[-1].poll()

    def observed(call: Callable[..., Any]) -> Callable[..., Any]:
        def around(*args: Any) -> Any:
            look()
            found = call(*args)
            look()
            return found

        return around

    with monkeypatch.context() as patch:
        for name in ("open", "write", "replace", "fsync", "close"):
            patch.setattr(os, name, observed(getattr(os, name)))
        resume(tmp_path)
    assert {len(follower.records) for follower in lazy} == {
        2,
        3,
        4,
    }  # before and after truncation, and as it grew again
    for follower in (eager, *lazy):
        follower.poll()
        assert follower.records == Run(tmp_path).rounds == [record(1), record(2), record(3, 1), record(4, 1)]
