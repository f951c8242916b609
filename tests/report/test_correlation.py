import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.report.correlation import correlate, levels, pearson
from fedge.report.statistics import Estimate

FLOATS = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))


def test_pearson_by_hand() -> None:
    # deviations (-1, 0, 1) and (-1, 1, 0): 1 / sqrt(2 * 2)
    assert pearson([1, 2, 3], [1, 3, 2]) == pytest.approx(0.5)
    assert pearson([1, 2, 3], [30, 20, 10]) == pytest.approx(-1)
    assert pearson([1, 2, 3], [-1e200, 0, 1e200]) == pytest.approx(1)


@pytest.mark.parametrize(("xs", "ys"), [([], []), ([1], [2]), ([1, 1], [1, 2]), ([1, 2], [3, 3])])
def test_a_constant_has_no_correlation(xs, ys) -> None:
    assert pearson(xs, ys) is None


def test_series_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 and 1"):
        pearson([1, 2], [1])


@settings(max_examples=60)
@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=2, max_size=8))
def test_pearson_is_symmetric_bounded_and_turns_with_its_sign(points) -> None:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    found = pearson(xs, ys)
    if found is None:
        assert len(set(xs)) == 1 or len(set(ys)) == 1
        return
    assert -1 <= found <= 1
    assert pearson(ys, xs) == pytest.approx(found, abs=1e-9)
    assert pearson([-x for x in xs], ys) == pytest.approx(-found, abs=1e-9)


def runs_of(make_run, *points):
    return [
        make_run(
            seed=i,
            summary={"accuracy": accuracy, "rounds_to_target": reached},
            algorithm={"name": name, "learning_rate": rate, "warmup": rate > 1},
        )
        for i, (name, rate, accuracy, reached) in enumerate(points)
    ]


def test_numbers_and_booleans_correlate_with_the_number_of_runs(make_run) -> None:
    runs = runs_of(make_run, ("a", 1, 0.1, 10), ("a", 2, 0.3, None), ("a", 3, 0.2, 30))
    found = {(one.setting, one.outcome): one for one in correlate(runs, ["accuracy", "rounds_to_target"])}
    assert found["algorithm.learning_rate", "accuracy"].coefficient == pytest.approx(0.5)
    assert found["algorithm.learning_rate", "accuracy"].count == 3
    # the run that did not reach the target is not counted: (1, 10), (3, 30)
    assert found["algorithm.learning_rate", "rounds_to_target"].coefficient == pytest.approx(1)
    assert found["algorithm.learning_rate", "rounds_to_target"].count == 2
    # 0, 1, 1 against 0.1, 0.3, 0.2: deviations (-2, 1, 1)/3 and (-1, 1, 0)/10
    assert found["algorithm.warmup", "accuracy"].coefficient == pytest.approx(3 / (6 * 2) ** 0.5)
    assert len(found) == 4


def test_non_numeric_settings_are_compared_by_group_means(make_run) -> None:
    runs = runs_of(make_run, ("a", 1, 0.1, 10), ("b", 1, 0.3, None), ("a", 1, 0.2, 30))
    found = {(one.value, one.outcome): one.result for one in levels(runs, ["accuracy", "rounds_to_target"])}
    assert found["a", "accuracy"].estimate.mean == pytest.approx(0.15)
    assert found["a", "rounds_to_target"].estimate.mean == 20
    assert (found["b", "rounds_to_target"].estimate, found["b", "rounds_to_target"].count) == (None, 1)
    assert not [one for one in correlate(runs, ["accuracy"]) if one.setting == "algorithm.name"]


def test_of_settings_that_vary_together_only_the_first_is_kept(make_run) -> None:
    runs = [
        make_run(seed=i, summary={"accuracy": 0.5}, algorithm={"name": name, "weighting": weighting})
        for i, (name, weighting) in enumerate([("a", "x"), ("b", "y"), ("a", "x")])
    ]
    assert {one.setting for one in levels(runs, ["accuracy"])} == {"algorithm.name"}


def test_a_level_has_an_interval_only_if_its_runs_differ_in_the_seed_alone(make_run) -> None:
    runs = [
        make_run(seed=seed, summary={"accuracy": accuracy}, algorithm={"name": name, "rate": rate})
        for name, rate, seed, accuracy in (("a", 1, 1, 0.2), ("a", 1, 2, 0.4), ("b", 1, 1, 0.5), ("b", 2, 1, 0.7))
    ]
    same, pooled = levels(runs, ["accuracy"])
    assert (same.value, pooled.value) == ("a", "b")
    assert same.result.estimate == Estimate(pytest.approx(0.3), 0.2, 0.4, 2, "range")
    assert pooled.result.estimate.mean == pytest.approx(0.6)
    assert pooled.result.estimate.low is None


def test_numbers_near_the_largest() -> None:
    """Neither their sum nor a difference of two of them is a float."""
    for xs in ([0.0, 1.0, 2.0], [-1.5e308, 0.0, 1.5e308], [5e-324, 1e-323, 1.5e-323]):
        assert pearson(xs, [1e308, 1.5e308, 1.7e308]) == pytest.approx(pearson([0, 1, 2], [1.0, 1.5, 1.7]))
        assert pearson(xs, [1.7e308, 0.0, -1.7e308]) == pytest.approx(-1.0)
