"""Bytes per second of a server, from its events; expected numbers derived by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fedge.core.errors import ConfigError
from fedge.report.throughput import MAX_STEPS, WINDOW_S, measure_throughput, throughput_chart
from fedge.runs import Run

START = datetime(2026, 11, 18, 4, 0, tzinfo=UTC).timestamp()


def event(at: float, kind: str, client: int = 0, **fields: Any) -> dict[str, Any]:
    time = datetime.fromtimestamp(START + at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"time": time, "event": kind, "client": client, **fields}


TASK = [
    event(0.0, "offer", bytes=900),
    event(0.5, "fetch"),
    event(3.5, "work"),  # 900 bytes in 3 s: 150, 300, 300 and 150 of them in the first four seconds
    event(4.0, "upload"),
    event(4.5, "receive", bytes=70),
    event(5.5, "commit"),
]


def test_a_transfer_counts_evenly_from_its_first_to_its_last_event() -> None:
    found = measure_throughput(TASK)
    assert found is not None
    assert (found.start_s, found.step_s) == (START, 1)
    assert found.rates["down"] == pytest.approx([150, 300, 300, 150, 0, 0])
    assert found.rates["up"] == pytest.approx([0, 0, 0, 0, 70, 0])


def test_clients_add_up_and_a_rejected_upload_counts_too() -> None:
    other = [event(1, "fetch", 1), event(2, "work", 1), event(4, "upload", 1), event(4, "reject", 1, bytes=30)]
    found = measure_throughput([event(0, "offer", 1, bytes=10), *sorted([*TASK, *other], key=lambda one: one["time"])])
    assert found is not None
    assert found.rates["down"] == pytest.approx([150, 310, 300, 150, 0, 0])
    assert found.rates["up"] == pytest.approx([0, 0, 0, 0, 100, 0])


def test_long_logs_have_wider_steps_and_at_most_an_hour() -> None:
    events = []
    for at in range(0, 3 * 3600, 60):
        events += [event(at, "upload"), event(at + 30, "receive", bytes=3000)]
    found = measure_throughput(events)
    assert found is not None
    assert found.step_s == 30
    assert len(found.rates["up"]) <= MAX_STEPS + 1
    assert START + events_end(events) - found.start_s == pytest.approx(WINDOW_S, abs=1)
    assert sum(found.rates["up"]) * found.step_s == pytest.approx(60 * 3000, rel=0.02)


def events_end(events: list[dict[str, Any]]) -> float:
    return datetime.fromisoformat(events[-1]["time"]).timestamp() - START


def test_a_truncated_log_starts_with_its_first_complete_round() -> None:
    later = [event(9, "fetch"), event(10, "work"), event(11, "upload"), event(12, "receive", bytes=5)]
    events = [*TASK[3:], event(6, "offer", bytes=40), *later]
    whole, cut = measure_throughput(events), measure_throughput(events, cut=True)
    assert whole is not None
    assert cut is not None
    assert sum(whole.rates["up"]) == pytest.approx(75)
    assert sum(cut.rates["up"]) == pytest.approx(5)
    assert sum(cut.rates["down"]) == pytest.approx(40)
    assert cut.start_s == START + 5


@pytest.mark.parametrize(
    "events",
    [
        [],
        TASK[:2],
        [{"event": "damaged"}, {"time": "soon", "event": "offer"}, {"time": 7, "client": "a", "event": "fetch"}],
        [event(1, "work"), event(2, "receive", bytes=10)],  # their start is unknown
        [event(1, "offer", bytes=10), event(1, "work")],
        [event(0, "upload"), event(1, "receive", bytes=10) | {"time": "9999-12-31T23:59:59Z"}],  # the latest time
    ],
)
def test_events_without_transfers_have_no_throughput(events: list[dict[str, Any]]) -> None:
    assert measure_throughput(events) is None


def test_invalid_sizes_count_as_0() -> None:
    for size in (None, "many", -5, True):
        found = measure_throughput([event(0, "upload"), event(1, "receive", bytes=size)])
        assert found is not None
        assert sum(found.rates["up"]) == 0


def test_the_chart_has_unit_axis_and_window(tmp_path: Path) -> None:
    lines = [json.dumps(one) for one in (*TASK[:4], event(4.5, "receive", bytes=7_000_000))]
    (tmp_path / "events.jsonl").write_text("\n".join([*lines, '{"half']))
    spec = throughput_chart(Run(tmp_path)).to_dict()
    assert spec["encoding"]["y"]["title"] == "throughput (MB/s)"
    assert spec["encoding"]["x"]["title"] == "time (UTC)"
    notes = " ".join(spec["title"]["text"])
    assert "04:00:00 to 04:00:05 UTC, the last 5 s with events" in notes
    assert "mean over 1 s" in notes
    rows = [row for row in spec["data"]["values"] if row["direction"] == "up"]
    assert max(row["rate"] for row in rows) == pytest.approx(7)


def test_a_run_without_a_server(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it was not run by a server"):
        throughput_chart(Run(tmp_path))
    (tmp_path / "events.jsonl").write_text(json.dumps(TASK[0]) + "\n")
    with pytest.raises(ConfigError, match="no transfer is complete yet"):
        throughput_chart(Run(tmp_path))
