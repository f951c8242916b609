"""Metrics that runs declare themselves, in tables, charts, comparisons and targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fedge.core.metric_declaration import MetricDeclaration, declared_fields
from fedge.report.bars import bars
from fedge.report.chart_options import ChartOptions
from fedge.report.groups import describe_in, group_runs, own_fields
from fedge.report.learning_curves import curves
from fedge.report.pairs import pair
from fedge.report.tables import compare, grid, records

ERROR = MetricDeclaration("error", "lower", 0.0, 1.0, percent=True)


@pytest.fixture
def make_measured(make_run: Callable[..., Any]) -> Callable[..., Any]:
    """make_measured(name, seed, *errors, target=..., declaration=...)"""

    def make(name: str, seed: int, *errors: float, declaration: MetricDeclaration = ERROR, **options: Any) -> Any:
        rounds = [{"round": i, "error": error} for i, error in enumerate(errors, 1)]
        run = make_run(name, seed, rounds, {"error": errors[-1], "rounds_to_target": None}, **options)
        run.own_fields = declared_fields([declaration])
        return run

    return make


def test_a_table_has_a_column_for_an_own_metric(
    make_measured: Callable[..., Any], make_run: Callable[..., Any]
) -> None:
    other = make_run("other", 1, [{"round": 1, "accuracy": 0.5}], {"accuracy": 0.5})
    rows = compare(group_runs([make_measured("mine", 1, 0.5, 0.25), other]))
    found = grid(rows)
    assert found.head == ["name", "seeds", "accuracy\n(%)", "error\n(%)"]
    assert [list(row) for row in found.rows] == [["mine", "1", "–", "25"], ["other", "1", "50", "–"]]
    first, second = records(rows)
    assert first["metrics"]["error"]["mean"] == 0.25
    assert (second["metrics"], "own" in first) == ({}, False)


def test_a_target_is_written_in_its_unit(make_measured: Callable[..., Any]) -> None:
    (group,) = group_runs([make_measured("mine", 1, 0.5, target={"metric": "error", "value": 0.2})])
    assert str(group.target) == "error 20%"
    assert records(compare([group]))[0]["target"] == {"metric": "error", "value": 0.2}


def test_lower_is_better_if_the_run_declares_it(make_measured: Callable[..., Any]) -> None:
    first, second = group_runs([make_measured(name, seed, value + seed / 1000)
                                for name, value in (("good", 0.1), ("bad", 0.5)) for seed in (1, 2, 3)])  # fmt: skip
    assert pair(first, second, "error").verdict == "better"
    assert [row["label"] for row in bars([second, first], "error").to_dict()["data"]["values"]] == ["good", "bad"]


def test_a_band_is_clipped_to_the_declared_range(make_measured: Callable[..., Any]) -> None:
    groups = group_runs([make_measured("mine", seed, value) for seed, value in enumerate((0.0, 0.5, 1.0))])
    chart = curves(groups, "round", "error", ChartOptions(band=True)).to_dict()
    ((row),) = chart["data"]["values"]
    assert (row["low"], row["mean"], row["high"]) == (0, 50, 100)
    assert "error (%)" in str(chart)


def test_runs_with_conflicting_declarations_have_none_in_common(make_measured: Callable[..., Any]) -> None:
    other = MetricDeclaration("error", "higher")
    runs = [make_measured("a", 1, 0.5), make_measured("b", 1, 0.5, declaration=other)]
    assert own_fields(runs) == {}
    assert describe_in(group_runs(runs), "error").better == "neither"
    assert describe_in(group_runs(runs[:1]), "best_error").better == "lower"


def test_a_run_cannot_redeclare_a_built_in_field(make_measured: Callable[..., Any]) -> None:
    lie = MetricDeclaration("accuracy", "lower")
    assert describe_in(group_runs([make_measured("a", 1, 0.5, declaration=lie)]), "accuracy").better == "higher"
