"""The chart of round times."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edge_rounds import edge_line
from fedge.core.errors import ConfigError
from fedge.report.groups import RunGroup
from fedge.report.latency import latency

pytest.importorskip("altair", reason="needs the extra `view`")


def group(label: str, *runs: list[dict[str, Any]]) -> RunGroup:
    return RunGroup(label, [SimpleNamespace(edge=lines) for lines in runs])


def corners(panel: dict[str, Any], label: str) -> list[list[float]]:
    """Seconds, and shares in percent."""
    found = [row for row in panel["data"]["values"] if row["label"] == label]
    return [[row["x"] for row in found], [row["share"] for row in found]]


def test_a_curve_combines_all_rounds_of_all_runs() -> None:
    # Two cells: clients finish after 2 and 4 s in the first, no client worked in the second; then after 4 and 8 s.
    first = edge_line(1, 1, 2, [(0, 0, 0, 2, 0, 0), (1, 0, 0, 4, 0, 0)])
    second = edge_line(1, 1, 2, [(0, 0, 0, 4, 0, 0), (1, 1, 0, 8, 0, 0)])
    found = latency([group("a", [first], [second])]).to_dict()
    cells, clients = found["concat"]
    assert corners(cells, "a") == [[4, 4, 8], pytest.approx([0, 200 / 3, 100])]
    assert corners(clients, "a") == [[2, 2, 4, 8], pytest.approx([0, 25, 75, 100])]
    assert " ".join(found["title"]["text"]) == "share done by then; cells' rounds: 3, clients' rounds: 4"


def test_runs_without_a_record_are_left_out_with_a_note() -> None:
    recorded = group("a", [edge_line(workers=[(0, 0, 1, 1, 0, 0)]), edge_line(2)])
    found = latency([recorded, group("b", [])]).to_dict()
    assert corners(found["concat"][0], "b") == [[], []]
    assert (
        " ".join(found["title"]["text"])
        == "share done by then; cells' rounds: 1, clients' rounds: 1; 1 not shown: not recorded"
    )


def test_runs_without_any_edge_record_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"no run has edge\.jsonl.*edge\.record=true"):
        latency([group("a", [])])


def test_a_long_tail_makes_the_axis_logarithmic_unless_a_time_is_zero() -> None:
    def scales(*seconds: float) -> set[str]:
        workers = [(client, 0, 0.0, each, 0.0, 0.0) for client, each in enumerate(seconds)]
        found = latency([group("a", [edge_line(workers=workers)])]).to_dict()
        return {panel["layer"][0]["encoding"]["x"]["scale"].get("type", "linear") for panel in found["concat"]}

    assert scales(1, 1, 10) == {"linear"}
    assert scales(1, 1, 11) == {"log"}
    assert scales(0, 1, 11) == {"linear"}


def test_a_deadline_that_all_share_is_a_line_among_the_clients() -> None:
    def rules(*deadlines: float | None) -> list[int]:
        lines = [edge_line(i, workers=[(0, 0, 0, 5, 0, 0)], deadline_s=each) for i, each in enumerate(deadlines)]
        return [len(panel["layer"]) - 1 for panel in latency([group("a", lines)]).to_dict()["concat"]]

    assert rules(4.0, 4.0) == [0, 2]
    assert rules(4.0, 3.0) == [0, 0]
    assert rules(None) == [0, 0]
    assert rules(6.0) == [0, 0]  # no client came near it
