"""The crossing of the mean curve, by hand."""

from typing import Any

from fedge.report.exports import hfl_results
from fedge.report.groups import RunGroup, group_runs
from fedge.report.mean_curve import rounds_of_mean
from fedge.report.tables import compare, grid, records

TARGET = {"metric": "accuracy", "value": 0.9, "stop": False}
FAST = [0.5, 0.95, 0.95, 0.95]  # first crosses in round 2
SLOW = [0.1, 0.5, 0.84, 0.9]  # in round 4: the mean of first crossings is 3
MEAN = 4  # the means are 0.3, 0.725, 0.895, 0.925


def lines(values: list[float | None], metric: str = "accuracy") -> list[dict[str, Any]]:
    return [{"round": i, **({} if v is None else {metric: v})} for i, v in enumerate(values, start=1)]


def seeds(make_run: Any, *curves: list[float | None], target: Any = TARGET, metric: str = "accuracy") -> RunGroup:
    first = [next((i for i, v in enumerate(curve, start=1) if v and v >= 0.9), None) for curve in curves]
    runs = [
        make_run("a", seed, lines(curve, metric), {"rounds_to_target": crossing}, target)
        for seed, (curve, crossing) in enumerate(zip(curves, first, strict=True))
    ]
    (group,) = group_runs(runs)
    return group


def test_the_mean_reaches_the_target_in_another_round_than_the_seeds(make_run) -> None:
    group = seeds(make_run, FAST, SLOW)
    assert rounds_of_mean(group) == MEAN
    (row,) = compare([group])
    assert row.rounds_to_target is not None
    assert (row.rounds_to_target.mean, row.rounds_to_target_of_mean) == (3, MEAN)


def test_the_mean_may_reach_the_target_earlier(make_run) -> None:
    # 0.7, 0.91, ...: two rounds before the mean of 1 and 5
    assert rounds_of_mean(seeds(make_run, [0.9, 0.99, 0.99, 0.99, 0.99], [0.5, 0.83, 0.85, 0.89, 0.9])) == 2


def test_a_loss_target_is_an_upper_bound(make_run) -> None:
    target = {"metric": "loss", "value": 1.0, "stop": False}
    assert rounds_of_mean(seeds(make_run, [2.0, 0.5, 0.5], [2.0, 1.75, 1.25], target=target, metric="loss")) == 3


def test_only_rounds_measured_by_all_seeds_count(make_run) -> None:
    assert rounds_of_mean(seeds(make_run, [0.9, 0.9, 0.9], [None, None, 0.9])) == 3
    assert rounds_of_mean(seeds(make_run, [0.5, 0.95], SLOW)) is None  # stopped by its target


def test_none_if_not_reached_without_target_or_mixed(make_run) -> None:
    assert rounds_of_mean(seeds(make_run, [0.1, 0.2], [0.9, 0.9])) is None
    assert rounds_of_mean(seeds(make_run, FAST, SLOW, target=None)) is None
    assert rounds_of_mean(RunGroup("both", seeds(make_run, FAST, SLOW).runs, mixed=True)) is None
    assert rounds_of_mean(seeds(make_run, FAST)) == 2  # a single seed is its own mean


def test_both_rounds_to_target_are_in_tables_and_exports(make_run) -> None:
    group = seeds(make_run, FAST, SLOW)
    shown = grid(compare([group]))
    at = shown.head.index("rounds\nto 90%")
    first, *_, of_mean = shown.rows[0][at].split("\n")
    assert first.startswith("3")
    assert of_mean == "mean: 4"
    assert "mean: the first round in which the mean over seeds reached it" in shown.notes
    assert records(compare([group]))[0]["rounds_to_target_of_mean"] == MEAN
    results = hfl_results(group)["results"]
    assert (results["rounds_to_target"], results["rounds_to_target_of_mean"]) == (3, MEAN)


def test_the_mean_may_reach_a_target_that_a_seed_misses(make_run) -> None:
    (row,) = grid(compare([seeds(make_run, [0.99, 0.99], [0.1, 0.89])])).rows
    assert row[-1].split("\n") == ["1", "1/2 reached", "mean: 2"]
    (row,) = grid(compare([seeds(make_run, [0.1, 0.2], [0.1, 0.89])])).rows
    assert row[-1].split("\n") == ["not reached", "mean: –"]


def test_a_single_seed_has_one_round_to_target(make_run) -> None:
    (row,) = grid(compare([seeds(make_run, FAST)])).rows
    assert row[-1] == "2"
