"""One line for each event, whole lines only, in files of bounded size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedge.core.errors import RunError
from fedge.net.events import EventLog, read_events
from hostile import LABELS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def test_an_event_is_a_line_of_json(path: Path) -> None:
    log = EventLog(path, clock=lambda: 1_000_000_000.125)
    log.append("join", client=3, name="pi", bytes=7, seconds=0.5, reason=None)
    log.append("commit", round=1)
    log.flush()
    first, second = path.read_text().splitlines()
    assert first == '{"time":"2001-09-09T01:46:40.125Z","event":"join","client":3,"name":"pi","bytes":7,"seconds":0.5}'
    assert json.loads(second)["round"] == 1
    log.close()
    assert [event["event"] for event in read_events(path)] == ["join", "commit"]


def test_a_log_is_continued_after_a_half_line(path: Path) -> None:
    path.write_bytes(b'{"event":"a"}\n{"event":"b"')
    assert [event["event"] for event in read_events(path)] == ["a"]
    log = EventLog(path)
    log.append("c")
    log.close()
    assert [event["event"] for event in read_events(path)] == ["a", "c"]


def test_no_log(path: Path) -> None:
    assert list(read_events(path)) == []


def test_old_files_are_put_aside_and_then_deleted(path: Path) -> None:
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
def test_what_clients_say_is_escaped(path: Path, label: str) -> None:
    log = EventLog(path)
    log.append("reject", name=label, reason=label * 500)
    log.close()
    line = path.read_text(encoding="utf-8")
    assert line.count("\n") == 1
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 or letter == "\u202e" for letter in line[:-1])
    (event,) = read_events(path)
    assert event["name"] == (label if label != "\ud800" else "\\ud800")
    assert len(event["reason"]) <= 6000


def test_a_damaged_line_is_an_error(path: Path) -> None:
    path.write_bytes(b'{"event":"a"}\n[1]\n')
    with pytest.raises(RunError, match=str(path)):
        list(read_events(path))
