"""Shares of variance against sums of squares derived by hand."""

import json
from dataclasses import asdict

import pytest

from fedge.core.errors import ConfigError
from fedge.report.importance import measure_importance


@pytest.fixture
def make_runs(make_run):
    """Runs with an accuracy for each (settings of the algorithm, seed)."""

    def make(results):
        return [
            make_run("x", seed, summary={"accuracy": value}, algorithm=dict(algorithm))
            for (algorithm, seed), value in results.items()
        ]

    return make


def key(seed=1, **algorithm):
    return tuple(algorithm.items()), seed


def test_a_balanced_grid_has_the_classical_sums_of_squares(make_runs) -> None:
    """Rate by steps, two seeds a cell: 1, 3 | 5, 7 over 9, 11 | 25, 27; the mean is 11.

    Rate: means 4 and 18, SS = 4 * (7^2 + 7^2) = 392. Steps: means 6 and 16, SS = 4 * (5^2 + 5^2) = 200. Interaction:
    cell means 2, 6, 10, 26 less 11 ∓ 7 ∓ 5 leave ±3, SS = 8 * 9 = 72. Seeds: 8 * 1 = 8. In total 672.
    """
    cells = {(1, 5): (1, 3), (1, 9): (5, 7), (2, 5): (9, 11), (2, 9): (25, 27)}
    found = measure_importance(
        make_runs({key(s, rate=r, steps=k): both[s] for (r, k), both in cells.items() for s in (0, 1)}), "accuracy"
    )
    assert [(one.setting, one.levels) for one in found.settings] == [("algorithm.rate", 2), ("algorithm.steps", 2)]
    assert [one.share for one in found.settings] == pytest.approx([392 / 672, 200 / 672])
    assert found.interactions == pytest.approx(72 / 672)
    assert found.seeds == pytest.approx(8 / 672)
    assert found.shared == pytest.approx(0, abs=1e-12)
    assert (found.runs, found.outcome, found.rough) == (8, "accuracy", True)
    assert json.loads(json.dumps(asdict(found)))["settings"][0]["setting"] == "algorithm.rate"


def test_an_unbalanced_grid_is_adjusted(make_runs) -> None:
    """y = 2 a + 4 b exactly, over (0, 0), (1, 0), (1, 1), (1, 1).

    Dropping a leaves b: means 1 and 6 within 0, 2 and 6, 6, so SS = 2. Dropping b leaves a: 0 and 2, 6, 6, SS = 32/3.
    The total is 0, 2, 6, 6 around 3.5: 27. What a and b share is 27 - 2 - 32/3.
    """
    values = {key(1, a=0, b=0): 0, key(1, a=1, b=0): 2, key(1, a=1, b=1): 6, key(2, a=1, b=1): 6}
    found = measure_importance(make_runs(values), "accuracy")
    assert {one.setting: one.share for one in found.settings} == {
        "algorithm.b": pytest.approx(32 / 3 / 27),
        "algorithm.a": pytest.approx(2 / 27),
    }
    assert found.shared == pytest.approx((27 - 2 - 32 / 3) / 27)
    assert (found.interactions, found.seeds) == (pytest.approx(0, abs=1e-12), pytest.approx(0, abs=1e-12))


def test_without_repeated_seeds_their_variance_is_among_the_interactions(make_runs) -> None:
    values = {key(1, a=a, b=b): 2 * a + 3 * b + a * b for a in (0, 1) for b in (0, 1)}
    found = measure_importance(make_runs(values), "accuracy")
    # 0, 2, 3, 6: main effects 2.5 and 3.5, SS 6.25 and 12.25; the interaction is 0.25 in each of four cells
    assert found.seeds is None
    assert found.interactions == pytest.approx(0.25 / 18.75)
    assert [one.share for one in found.settings] == pytest.approx([12.25 / 18.75, 6.25 / 18.75])


def test_an_optimum_in_the_middle_is_important(make_runs) -> None:
    """A rank correlation would be 0."""
    values = {key(seed, rate=rate): -((rate - 2) ** 2) for rate in (1, 2, 3) for seed in (1, 2)}
    (only,) = measure_importance(make_runs(values), "accuracy").settings
    assert (only.share, only.levels) == (pytest.approx(1), 3)


def test_many_values_are_binned_by_rank(make_runs) -> None:
    """Nine rates, three a bin: 1 to 9. Bins have means 2, 5, 8, SS = 3 * (9 + 0 + 9) = 54 of 60."""
    found = measure_importance(make_runs({key(1, rate=1.5**i): i for i in range(1, 10)}), "accuracy")
    (only,) = found.settings
    assert (only.levels, only.binned) == (3, True)
    assert only.share == pytest.approx(54 / 60)


def test_settings_that_follow_the_algorithm_have_no_share(make_runs) -> None:
    def run(name, rate, seed):
        return key(seed, name=name, weighting="uniform" if name == "fedadam" else "samples", rate=rate)

    names = {"fedavg": 0, "scaffold": 2, "fedadam": 4}
    values = {run(name, rate, seed): base + rate for name, base in names.items() for rate in (0, 1) for seed in (1, 2)}
    found = measure_importance(make_runs(values), "accuracy")
    assert found.follows == {"algorithm.weighting": "algorithm.name"}
    # of 12 runs: SS of names 4 * (4 + 0 + 4) = 32, of rates 12 * 0.25 = 3
    assert {one.setting: one.share for one in found.settings} == {
        "algorithm.name": pytest.approx(32 / 35),
        "algorithm.rate": pytest.approx(3 / 35),
    }


def test_an_option_of_one_algorithm_has_its_own_share(make_runs) -> None:
    """FedAvg 0, 0; FedProx with two values of mu: 3, 5. Algorithm: 4 * 4 = 16; mu within FedProx: 2."""
    values = {key(seed, name="fedavg", prox=None): 0.0 for seed in (1, 2)}
    values |= {key(1, name="fedprox", prox=0.1): 3.0, key(1, name="fedprox", prox=1.0): 5.0}
    found = measure_importance(make_runs(values), "accuracy")
    assert {one.setting: one.share for one in found.settings} == {
        "algorithm.name": pytest.approx(16 / 18),
        "algorithm.prox": pytest.approx(2 / 18),
    }


def test_too_few_runs_are_refused(make_runs) -> None:
    values = {key(1, a=0, b=0): 0.1, key(1, a=1, b=0): 0.2, key(1, a=0, b=1): 0.4}
    with pytest.raises(ConfigError, match="3 runs are too few for 2 settings, expected at least 4"):
        measure_importance(make_runs(values), "accuracy")
    with pytest.raises(ConfigError, match="differ in a setting, got none"):
        measure_importance(make_runs({key(1, a=0): 0.1, key(2, a=0): 0.2}), "accuracy")
    with pytest.raises(ConfigError, match="all 4 runs have the same value"):
        measure_importance(make_runs({key(s, a=a): 0.1 for s in (1, 2) for a in (0, 1)}), "accuracy")


def test_runs_without_the_result_are_ignored(make_runs, make_run) -> None:
    runs = make_runs({key(seed, a=a): a + 0.1 * seed for seed in (1, 2) for a in (0, 1)})
    unfinished = make_run("x", 3, summary=None, algorithm={"a": 1})
    assert measure_importance([*runs, unfinished], "accuracy").runs == 4
