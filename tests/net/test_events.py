"""The event log: one line per event, complete lines only, in files of bounded size."""

from __future__ import annotations

import json
import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from fedge.net.events import EventLog
from filled import filled
from hostile import LABELS
from net.records import read_events
from runs.crashing import spawn


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def test_event_is_a_line_of_json(path: Path) -> None:
    log = EventLog(path, clock=lambda: 1_000_000_000.125)
    log.append("join", client=3, name="pi", bytes=7, seconds=0.5, reason=None)
    log.append("commit", round=1)
    log.flush()
    first, second = path.read_text().splitlines()
    assert first == '{"time":"2001-09-09T01:46:40.125Z","event":"join","client":3,"name":"pi","bytes":7,"seconds":0.5}'
    assert json.loads(second)["round"] == 1
    log.close()
    assert [event["event"] for event in read_events(path)] == ["join", "commit"]


def test_log_continues_after_an_incomplete_line(path: Path) -> None:
    path.write_bytes(b'{"event":"a"}\n{"event":"b"')
    assert [event["event"] for event in read_events(path)] == ["a"]
    log = EventLog(path)
    log.append("c")
    log.close()
    assert [event["event"] for event in read_events(path)] == ["a", "c"]


def test_old_files_are_rotated_and_then_deleted(path: Path) -> None:
    log = EventLog(path, max_bytes=200, num_older=2)
    for number in range(100):
        log.append("beat", number=number)
        log.flush()
    log.close()
    names = sorted(file.name for file in path.parent.iterdir())
    assert names == ["events.jsonl", "events.jsonl.1", "events.jsonl.2"]
    assert all(file.stat().st_size <= 200 for file in path.parent.iterdir())
    numbers = [event["number"] for event in read_events(path)]
    assert numbers == list(range(100 - len(numbers), 100))
    assert len(numbers) > 4


@pytest.mark.parametrize("label", [*LABELS, "\ud800"])
def test_clients_texts_are_escaped(path: Path, label: str) -> None:
    log = EventLog(path)
    log.append("reject", name=label, reason=label * 500)
    log.close()
    line = path.read_text(encoding="utf-8")
    assert line.count("\n") == 1
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 or letter == "\u202e" for letter in line[:-1])
    (event,) = read_events(path)
    assert event["name"] == (label if label != "\ud800" else "\\ud800")
    assert len(event["reason"]) <= 6000


def numbers_in(path: Path) -> list[int]:
    return [event["number"] for event in read_events(path)]


def append_many(path: Path) -> None:
    log = EventLog(path, max_bytes=300, num_older=3)
    start = max(numbers_in(path), default=-1) + 1
    for number in range(start, start + 40):
        log.append("beat", number=number)
        log.flush()
    log.close()


@pytest.mark.full
@pytest.mark.parametrize("mode", ["kill", "kill-half"])
def test_kill_at_every_system_call(path: Path, mode: str) -> None:
    """Complete lines in order remain, and the next process continues them."""
    for fatal in range(60 if mode == "kill" else 40):
        before = numbers_in(path)
        code = os.waitstatus_to_exitcode(os.waitpid(spawn(lambda: append_many(path), fatal, mode), 0)[1])
        assert code in (-signal.SIGKILL, 0)
        found = numbers_in(path)
        assert all(after == number + 1 for number, after in pairwise(found))
        assert max(found, default=-1) >= max(before, default=-1)
        assert len(list(path.parent.iterdir())) <= 4
    assert max(numbers_in(path)) > 100


def test_full_disk(small_disk: Path) -> None:
    path = small_disk / "events.jsonl"
    log = EventLog(path)
    log.append("before")
    log.flush()
    with filled(small_disk, 8192):
        for number in range(100):
            log.append("meanwhile", number=number, reason="r" * 900)
            log.flush()
        assert log.problem == f"cannot write {path}: No space left on device"
        assert path.read_bytes().endswith(b"\n")
        written = len(read_events(path))
        assert written < 100
    log.append("after")
    log.flush()
    assert log.problem == ""
    log.close()
    events = read_events(path)
    assert [event["event"] for event in events[-2:]] == ["gap", "after"]
    assert events[-2]["lines"] == 101 - written


def test_failed_rotation_loses_no_older_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog(path, max_bytes=200, num_older=2)
    for number in range(10):
        log.append("beat", number=number)
        log.flush()
    before = numbers_in(path)
    real = os.open

    def fail(file: object, *args: object) -> int:
        if file == path:
            raise OSError(28, "No space left on device")
        return real(file, *args)

    monkeypatch.setattr(os, "open", fail)
    lost = 0
    while lost < 5:
        log.append("beat", number=-1)
        log.flush()
        lost += log.problem != ""
    monkeypatch.undo()
    log.append("beat", number=10)
    log.close()
    found = read_events(path)
    assert found[-2]["lines"] == 5
    kept = [event["number"] for event in found if event.get("number", -1) >= 0]
    assert kept[:-1] == before[-len(kept) + 1 :]
    assert len(kept) > 3


def test_close_twice_and_append_afterwards(path: Path) -> None:
    log = EventLog(path)
    log.append("a")
    log.close()
    log.append("b")
    log.flush()
    log.close()
    assert [event["event"] for event in read_events(path)] == ["a"]


def test_pending_lines_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog(path)
    with log._changed:  # blocks the thread
        for _ in range(10_000):
            log.append("long", reason="r" * 1000)
        assert log._num_waiting <= 4 << 20
    log.close()
    events = read_events(path)
    assert 3000 < len(events) < 5000
    assert sum(event.get("lines", 1) for event in events) == 10_000
