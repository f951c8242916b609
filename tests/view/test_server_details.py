"""The content of a server's page, from `status.json` and `events.jsonl`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from benchmarks.page_runs import make_run
from starlette.testclient import TestClient

from fedge.view import server_details
from fedge.view.server_details import EventCursor, describe_server, new_events, read_status
from view.test_exports import EVENTS, key_of, networked

NOW_S = 1_795_000_000.0
STATUS = {
    "state": "", "time": "", "round": 0, "num_rounds": None, "exchange": 0, "attempt": 0, "waiting_for": "",
    "deadline_s": None, "clients": {}, "not_joined": {}, "asked": 0, "accepted": 0, "received": 0, "bytes_down": 0,
    "bytes_up": 0, "down_bytes_per_s": 0.0, "up_bytes_per_s": 0.0,
}  # fmt: skip


def write_status(folder: Path, **fields: Any) -> None:
    (folder / "status.json").write_text(json.dumps(fields))


def write_events(folder: Path, *events: dict[str, Any]) -> None:
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))


def at(age_s: float) -> str:
    return datetime.fromtimestamp(NOW_S - age_s, UTC).isoformat()


def test_a_status_without_fields(tmp_path: Path) -> None:
    write_status(tmp_path)
    assert read_status(tmp_path / "status.json") == STATUS


def test_no_status_yet(tmp_path: Path) -> None:
    found = describe_server(tmp_path, NOW_S)
    assert (found["status"], found["problem"], found["age_s"], found["alive"]) == (None, None, None, False)
    assert (found["events"], found["clients"], found["cursor"]) == ([], [], {"inode": 0, "offset": 0})


@pytest.mark.parametrize(
    ("age_s", "told_s", "alive"),
    [(0.5, 0.5, True), (9.5, 9.5, True), (10.5, 10.5, False), (5000, 5000, False), (-9, 0, True), (-11, None, False)],
)
def test_a_server_is_alive_while_it_writes_its_status(
    tmp_path: Path, age_s: float, told_s: float | None, alive: bool
) -> None:
    """A status from the future has a wrong clock: the server would appear alive for years."""
    write_status(tmp_path, time=at(age_s))
    found = describe_server(tmp_path, NOW_S)
    assert (found["age_s"], found["alive"]) == (told_s if told_s is None else pytest.approx(told_s), alive)


@pytest.mark.parametrize("time", ["", "yesterday", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_a_time_that_cannot_be_read(tmp_path: Path, open_page: Callable[..., TestClient], time: str) -> None:
    run = make_run(tmp_path / "runs" / "a", finished=False)
    networked(run)
    write_status(run, time=time, state="open", round=1)
    found = describe_server(run, NOW_S)
    assert (found["age_s"], found["alive"], found["problem"]) == (None, False, None)
    page = open_page(tmp_path / "runs")
    assert "unknown whether the server is running" in page.get(f"/server/{key_of(page, 'a')}").text


@pytest.mark.parametrize("time", [7, 1.5, ["a"], {"b": 1}, True, None, "x" * 100])
def test_times_of_events_of_any_type(tmp_path: Path, open_page: Callable[..., TestClient], time: Any) -> None:
    run = make_run(tmp_path / "runs" / "a", finished=False)
    networked(run)
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps({"time": time, "event": "reject", "client": 1, "round": 1, "reason": "odd"}) + "\n")
    page = open_page(tmp_path / "runs")
    assert page.get(f"/server/{key_of(page, 'a')}").status_code == 200


def test_a_status_of_two_megabytes(tmp_path: Path, open_page: Callable[..., TestClient]) -> None:
    run = make_run(tmp_path / "runs" / "a", finished=False)
    networked(run)
    write_status(run, round=1, waiting_for="x" * 2_000_000)
    page = open_page(tmp_path / "runs")
    answer = page.get(f"/server/{key_of(page, 'a')}")
    assert "status.json: expected at most 1,048,576 bytes, got 2,000," in answer.text
    assert len(answer.content) < 200_000


def test_a_damaged_status_is_reported_and_the_rest_is_shown(
    tmp_path: Path, open_page: Callable[..., TestClient]
) -> None:
    run = make_run(tmp_path / "runs" / "a", finished=False)
    networked(run)
    write_status(run, round="two")
    found = describe_server(run, NOW_S)
    assert found["status"] is None
    assert "status.json is damaged: round: expected int, got str" in found["problem"]
    assert len(found["events"]) == len(EVENTS)
    page = open_page(tmp_path / "runs")
    text = page.get(f"/server/{key_of(page, 'a')}").text
    assert "status.json is damaged" in text
    assert "digits-a" in text


def test_clients_and_rejections_of_a_server(tmp_path: Path) -> None:
    networked(make_run(tmp_path / "run"))
    found = describe_server(tmp_path / "run", 1795000000.0)
    assert [(one["name"], one["state"], one["answers"], one["rejected"]) for one in found["clients"]] == [
        ("digits-a", "rejected", 1, 1),
        ("stranger", "refused", 0, 0),
    ]
    assert [event["reason"] for event in found["rejections"]] == ["unknown certificate", "not finite"]
    assert found["names"]["0"] == "digits-a"


def test_rejections_older_than_the_last_events_are_found(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    networked(folder)
    more = "\n".join(json.dumps({"event": "offer", "client": 0, "round": 3}) for _ in range(500))
    (folder / "events.jsonl").write_text("\n".join(json.dumps(event) for event in EVENTS) + f"\n{more}\n")
    found = describe_server(folder, 0.0)
    assert len(found["events"]) == 200
    assert len(found["rejections"]) == 2


def test_the_last_event_of_a_client(tmp_path: Path) -> None:
    write_events(
        tmp_path,
        {"event": "join", "client": 10, "name": "ten"},
        {"event": "join", "client": 9},
        {"event": "drop", "client": 10, "round": 4, "reason": "lease", "time": "a"},
        {"event": "commit", "client": 10, "round": 5, "reason": "no state of a client"},
        {"event": "refuse", "name": "b", "reason": "unknown"},
        {"event": "refuse", "name": "a"},
        {"event": ["join"], "client": 1},
        {"event": "join", "client": None},
        {"event": "join", "client": 1.5},
        {"event": "join", "name": ["a"]},
        {"event": "fail", "client": 9, "reason": "memory"},
        {"event": "late", "client": 9},
        {"event": "receive", "client": 9, "round": 7},
    )
    found = describe_server(tmp_path, NOW_S)
    columns = ("client", "name", "state", "round", "answers", "rejected", "reason")
    assert [tuple(one[name] for name in columns) for one in found["clients"]] == [
        (9, None, "received", 7, 1, 2, None),
        (10, "ten", "dropped", 4, 0, 1, "lease"),
        (None, "a", "refused", None, 0, 0, None),
        (None, "b", "refused", None, 0, 0, "unknown"),
    ]
    assert found["clients"][1]["time"] == "a"
    assert found["names"]["10"] == "ten"
    assert "9" not in found["names"]


def test_many_clients_and_rejections_are_cut_and_counted(tmp_path: Path) -> None:
    write_events(tmp_path, *({"event": "reject", "client": i, "reason": f"r{i}"} for i in range(501)))
    found = describe_server(tmp_path, NOW_S)
    assert (len(found["clients"]), found["num_clients"]) == (500, 501)
    assert [event["reason"] for event in found["rejections"]] == [f"r{i}" for i in range(451, 501)]
    assert [event["client"] for event in found["events"]] == list(range(301, 501))


def test_a_long_log_is_read_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_details, "_TAIL_BYTES", 100)
    events = [{"event": "work", "client": i} for i in range(50)]
    write_events(tmp_path, *events)
    size = (tmp_path / "events.jsonl").stat().st_size
    found, cursor = new_events(tmp_path, None)
    assert found == events[-len(found) :]
    assert 1 <= len(found) <= 4  # whole lines of the last 100 bytes
    assert cursor.offset == size
    found, _ = new_events(tmp_path, EventCursor(cursor.inode, size - 99))  # what is new is short, the log is long
    assert found[-1] == events[-1]
    assert new_events(tmp_path, cursor) == ([], cursor)


def test_events_since_a_cursor(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    write_events(tmp_path, {"event": "join", "client": 1})
    _, cursor = new_events(tmp_path, None)
    with file.open("a") as opened:
        opened.write('{"event": "work", "client": 1}\n{"event": "fin')
    found, cursor = new_events(tmp_path, cursor)
    assert found == [{"event": "work", "client": 1}]
    with file.open("a") as opened:
        opened.write('ish", "client": 1}\nnonsense\n')
    found, cursor = new_events(tmp_path, cursor)
    assert [event["event"] for event in found] == ["finish", "damaged"]
    assert found[1]["reason"] == "a line of events.jsonl cannot be read"
    with file.open("r+") as opened:  # cut in place: the same inode, and shorter than the cursor
        opened.truncate(0)
        opened.write('{"event": "new"}\n')
    found, cursor = new_events(tmp_path, cursor)
    assert found == [{"event": "new"}]
    other = tmp_path / "other"
    other.write_text('{"event": "newer"}\n' + "x" * 1000)
    os.replace(other, file)
    found, cursor = new_events(tmp_path, cursor)
    assert found == [{"event": "newer"}]
    file.unlink()
    assert new_events(tmp_path, cursor) == ([], cursor)
    assert new_events(tmp_path, None) == ([], EventCursor(0, 0))


def test_the_page_of_a_server_that_has_ended_shows_nothing_as_current(
    tmp_path: Path, open_page: Callable[..., TestClient]
) -> None:
    """The last status of a server that was killed still has its clients at work."""
    folder = make_run(tmp_path / "runs" / "a", finished=False)
    networked(folder)
    status = {"state": "open", "round": 2, "num_rounds": 9, "clients": {"working": 3}}
    write_status(folder, time="2026-11-18T04:00:00Z", **status)
    page = open_page(tmp_path / "runs")
    text = page.get(f"/server/{key_of(page, 'a')}").text
    assert text.count("The server is not running.") == 2
    assert 'status-unfinished">ended</span>' in text
    assert "working" not in text
    text = page.get(f"/run/{key_of(page, 'a')}").text
    assert "fedge resume" in text
    assert "<code>--insecure</code> or <code>--pki DIR</code>" in text
    write_status(folder, time=datetime.now(UTC).isoformat(), **status)
    text = page.get(f"/server/{key_of(page, 'a')}").text
    assert "<dt>working</dt><dd>3</dd>" in text
    assert 'status-running">open</span>' in text
