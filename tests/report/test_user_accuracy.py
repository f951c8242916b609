"""The distribution of user accuracy over clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.errors import ConfigError
from fedge.report.groups import RunGroup, group_runs
from fedge.report.style import save
from fedge.report.user_accuracy import MOST_STEPS, cumulate, user_accuracies, users

pytest.importorskip("altair", reason="needs the extra `view`")


def clients(*accuracies: float | None) -> list[dict[str, Any]]:
    return [{"client": i, "rounds": 1, "user_accuracy": accuracy} for i, accuracy in enumerate(accuracies)]


def corners(chart: Any, label: str) -> list[tuple[float, float]]:
    found = chart.to_dict()
    return [
        (row["x"], row["share"])
        for layer in found["layer"]
        for row in layer["data"]["values"]
        if row.get("label") == label
    ]


def test_a_curve_combines_the_clients_of_all_seeds(make_run) -> None:
    one = make_run("a", 1, clients=clients(0.5, 0.25, None))
    other = make_run("a", 2, clients=[*clients(0.5, 0.75), {"client": 9, "rounds": 0}])
    chart = users(group_runs([one, other]))
    # four measured clients: one at 25%, two at 50%, one at 75%
    assert corners(chart, "a") == [(25, 0), (25, 25), (50, 75), (75, 100)]
    assert " ".join(chart.to_dict()["title"]["text"]) == "share with at most that accuracy; 2 clients in each of 2 runs"


def test_groups_without_user_accuracy_are_left_out_with_a_note(make_run) -> None:
    measured = RunGroup("a", [make_run("a", clients=clients(0.5))])
    chart = users([measured, RunGroup("b", [make_run("b", clients=[{"client": 0}])])])
    assert corners(chart, "b") == []
    assert (
        " ".join(chart.to_dict()["title"]["text"])
        == "share with at most that accuracy; 1 client; 1 not shown: not measured"
    )


def test_runs_without_user_accuracy_are_refused(make_run) -> None:
    run = make_run("a", clients=[{"client": 0, "rounds": 3}])
    assert user_accuracies(run) == []
    with pytest.raises(ConfigError, match=r"no run has the user_accuracy .*evaluate\.user_accuracy = true"):
        users([RunGroup("a", [run])])


def test_lines_differ_in_colour_and_dash(make_run) -> None:
    groups = [RunGroup(name, [make_run(name, clients=clients(0.5, 0.6))]) for name in "abc"]
    looks = users(groups).to_dict()["layer"][-1]["encoding"]
    for channel in ("stroke", "strokeDash"):
        scale = looks[channel]["scale"]
        assert scale["domain"] == ["a", "b", "c"]
        assert len({str(look) for look in scale["range"]}) == 3


def test_the_chart_renders_to_svg(make_run, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="needs the extra `view`")
    save(users([RunGroup("a", [make_run("a", clients=clients(0.1, 0.9))])]), tmp_path / "users.svg")
    drawn = (tmp_path / "users.svg").read_text()
    for text in ("user accuracy (%)", "share of clients (%)", "median"):
        assert text in drawn


@settings(max_examples=60)
@given(st.lists(st.integers(0, 20).map(lambda part: part / 20), min_size=1, max_size=60))
def test_a_share_is_that_of_clients_up_to_a_value(values: list[float]) -> None:
    first, *steps = cumulate(values)
    assert first == (min(values), 0)
    assert [value for value, _ in steps] == sorted(set(values))
    for value, share in steps:
        assert share == sum(other <= value for other in values) / len(values)


def test_curves_of_many_clients_have_a_limited_number_of_points() -> None:
    steps = list(cumulate([i / 100_000 for i in range(100_000)]))[1:]
    assert len(steps) == MOST_STEPS
    assert steps[-1] == (0.99999, 1)
    # value i / n is the (i + 1)-th, so that its share is (i + 1) / n
    assert all(share == pytest.approx(value + 1e-5) for value, share in steps)
