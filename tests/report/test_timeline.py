"""One round as a Gantt chart."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rounds import Worker, edge_line
from fedge.core.errors import ConfigError
from fedge.report.edge_records import EdgeRound
from fedge.report.style import CANVAS, save
from fedge.report.timeline import MOST_CLIENTS, timeline
from fedge.runs.data_names import DataNames

pytest.importorskip("altair", reason="needs the extra `view`")
pytest.importorskip("vl_convert", reason="needs the extra `view`")

SECONDS = st.floats(0, 100)


def made(workers: list[Worker], **fields: Any) -> EdgeRound:
    return msgspec.convert(edge_line(3, workers=workers, **fields), EdgeRound)


def chart(workers: list[Worker], **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = timeline(made(workers, **fields)).to_dict()
    return found


def values(found: dict[str, Any], layer: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = found["layer"][layer]["data"]["values"]
    return rows


def domain(found: dict[str, Any]) -> list[float]:
    ends: list[float] = found["layer"][0]["encoding"]["x"]["scale"]["domain"]
    return ends


def caption(spec: dict[str, Any]) -> str:
    return " ".join(spec["title"]["text"])


def deadline_marks(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [layer["data"]["values"][0] for layer in found["layer"] if "deadline" in layer["data"]["values"][0]]


def test_phases_follow_each_other_without_empty_ones() -> None:
    bars = values(chart([(9, 0, 1, 2, 0, 4)]), 0)
    assert [(bar["phase"], bar["start"], bar["end"]) for bar in bars] == [
        ("download", 0, 1),
        ("compute", 1, 3),
        ("upload", 3, 7),
    ]


def test_by_cell_then_by_finish_with_gaps_between_cells() -> None:
    found = chart([(1, 1, 0, 5, 0, 0), (2, 0, 0, 9, 0, 0), (3, 1, 0, 4, 0, 0)], cols=2)
    assert [name["client"] for name in values(found, 1)] == [2, 3, 1]
    assert [name["middle"] for name in values(found, 1)] == pytest.approx([0.5, 1.9, 2.9])
    assert values(found, 3) == [
        {"cell": "cell 0", "first": 0, "last": 1},
        {"cell": "cell 1", "first": pytest.approx(1.4), "last": pytest.approx(3.4)},
    ]


def test_late_clients_have_their_time_and_bars_far_beyond_the_deadline_are_cut() -> None:
    # The axis ends at 1.5 deadlines, 6 s.
    found = chart([(0, 0, 1, 2, 0, 1), (1, 0, 1, 2, 0, 2), (2, 0, 1, 2, 0, 57)], deadline_s=4.0)
    assert [(name["late"], name["at"]) for name in values(found, 1)] == [("", 4), ("late: 5 s", 5), ("late: 60 s", 6)]
    assert domain(found) == [0, 6]
    assert caption(found) == "round 3: 3 clients, 2 late; bars longer than 6 s are cut there"
    assert deadline_marks(found) == [{"deadline": 4}] * 2  # the rule and its label


@pytest.mark.parametrize("deadline_s", [2.0, 4.0, 8.0])
def test_the_label_of_a_deadline_does_not_widen_the_chart(tmp_path, deadline_s: float) -> None:
    drawn = timeline(made([(0, 0, 1, 2, 0, 1)], deadline_s=deadline_s))
    save(drawn, tmp_path / "timeline.svg")
    text = (tmp_path / "timeline.svg").read_text()
    assert "deadline" in text
    assert float(re.search(r'width="([0-9.]+)"', text)[1]) <= CANVAS["single"]


def test_a_deadline_after_all_clients_is_drawn_if_near_otherwise_noted() -> None:
    near = chart([(0, 0, 1, 2, 0, 1)], deadline_s=8.0)
    assert domain(near) == [0, 8]
    assert deadline_marks(near)
    far = chart([(0, 0, 1, 2, 0, 1)], deadline_s=9.0)
    assert domain(far) == [0, 4]
    assert deadline_marks(far) == []
    assert caption(far).endswith("the deadline, 9 s, is beyond the axis")


def test_long_rounds_are_shown_in_hours() -> None:
    found = chart([(0, 0, 0, 7200, 1, 0)], deadline_s=5400.0)
    assert domain(found) == pytest.approx([0, 7201 / 3600])
    assert values(found, 1)[0]["late"] == "late: 2 h"
    assert "wait: for the uplink; all of it is drawn before the upload" in caption(found)


def test_a_sample_of_many_clients_is_shown_with_a_note() -> None:
    found = chart([(client, 0, 0, client + 1, 0, 0) for client in range(2 * MOST_CLIENTS)], deadline_s=110.0)
    assert [name["client"] for name in values(found, 1)] == list(range(0, 2 * MOST_CLIENTS, 2))
    assert caption(found) == "round 3: 120 clients, 10 late; 60 shown, evenly spaced"


def test_a_round_without_clients_has_no_timeline() -> None:
    with pytest.raises(
        ConfigError, match="no client took part in round 3, so it has no timeline; choose another --round"
    ):
        timeline(made([]))


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), SECONDS, SECONDS, SECONDS, SECONDS), min_size=1, max_size=80))
def test_rows_never_overlap_and_bars_end_when_their_client_was_done(work: list[Any]) -> None:
    workers: list[Worker] = [(client, *own) for client, own in enumerate(work)]
    found = chart(workers, rows=2, cols=3)
    middles = [name["middle"] for name in values(found, 1)]
    assert len(middles) == min(len(workers), MOST_CLIENTS)
    assert all(b - a >= 1 - 1e-9 for a, b in pairwise(middles))
    ends = {bar["client"]: bar["end"] for bar in values(found, 0)}
    assert ends == pytest.approx({client: sum(workers[client][2:]) for client in ends})


def test_clients_are_shown_by_their_names() -> None:
    names = DataNames(clients=("north", "a ward with a name that is very long"))
    line = made([(0, 0, 1, 2, 0, 4), (1, 1, 1, 3, 0, 4), (2, 1, 1, 4, 0, 4)], cols=2)
    found = timeline(line, names).to_dict()
    assert [row["name"] for row in values(found, 1)] == ["north", "a ward with a name that…", "2"]
    assert [row["client"] for row in values(found, 1)] == [0, 1, 2]
    assert found["layer"][1]["encoding"]["text"]["field"] == "name"
    assert "clients are shown by their names in the data" in caption(found)  # which may be numerals
    assert "name" in [shown["field"] for shown in found["layer"][0]["encoding"]["tooltip"]]
    rule = found["layer"][4]["encoding"]["x"]["value"]
    assert rule == -10 - 5 * 24  # beyond the longest label


def test_clients_without_names_are_shown_by_their_numbers() -> None:
    found = chart([(9, 0, 1, 2, 0, 4)])
    assert [row["name"] for row in values(found, 1)] == ["9"]
    assert "clients are shown by their names in the data" not in caption(found)
    assert "name" not in [shown["field"] for shown in found["layer"][0]["encoding"]["tooltip"]]
