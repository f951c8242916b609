import pytest

from fedge.core.errors import ConfigError
from fedge.report.groups import RunGroup, group_runs
from fedge.report.pairs import find_baseline, pair, pair_all, sign_test


@pytest.fixture
def group(make_run):
    def make(label, values, field="accuracy"):
        return RunGroup(label, [make_run(seed=seed, summary={field: value}) for seed, value in values.items()])

    return make


def test_the_difference_is_taken_seed_by_seed(group) -> None:
    # differences 0.1, 0.2, 0.3: mean 0.2, deviation 0.1, half = 4.302653 * 0.1 / sqrt(3) = 0.248414
    found = pair(group("a", {1: 0.3, 2: 0.9, 3: 0.8}), group("b", {3: 0.5, 2: 0.7, 1: 0.2}), "accuracy")
    assert found.pairs == 3
    assert found.difference.mean == pytest.approx(0.2)
    assert found.difference.half == pytest.approx(0.248414, rel=1e-5)
    assert (found.wins, found.losses, found.verdict, found.by) == (3, 0, "no difference shown", "interval")


@pytest.mark.parametrize(
    ("field", "verdict"),
    [
        ("accuracy", "better"),
        ("loss", "worse"),
        ("rounds_to_target", "worse"),
        ("messages", "worse"),
        ("dropped", "worse"),
        ("f1", "higher"),
    ],
)
def test_the_direction_of_the_outcome_decides_the_verdict(group, field, verdict) -> None:
    # differences 0.2, 0.2, 0.21: the interval is 0.2033 ± 0.0143
    first, second = group("a", {1: 0.4, 2: 0.5, 3: 0.61}, field), group("b", {1: 0.2, 2: 0.3, 3: 0.4}, field)
    assert pair(first, second, field).verdict == verdict
    opposite = {"better": "worse", "worse": "better", "higher": "lower"}
    assert pair(second, first, field).verdict == opposite[verdict]


def test_seeds_of_one_side_alone_do_not_count(group) -> None:
    assert pair(group("a", {1: 0.3, 5: 0.9}), group("b", {1: 0.2, 6: 0.1}), "accuracy").pairs == 1
    assert pair_all([group("a", {1: 0.3}), group("b", {2: 0.3})], "accuracy") == []


def test_a_single_pair_has_no_verdict(group) -> None:
    found = pair(group("a", {1: 0.9}), group("b", {1: 0.1}), "accuracy")
    assert (found.difference.mean, found.difference.low) == (pytest.approx(0.8), None)
    assert found.verdict == "no difference shown"


def test_two_equal_differences_have_no_verdict_and_three_have_one(group) -> None:
    first, second = group("a", {1: 0.9, 2: 0.9, 3: 0.9}), group("b", {1: 0.5, 2: 0.5, 3: 0.5})
    assert pair(first, second, "accuracy").verdict == "better"
    found = pair(group("a", {1: 0.9, 2: 0.9}), second, "accuracy")
    assert (found.difference.low, found.difference.high) == (pytest.approx(0.4), pytest.approx(0.4))
    assert found.verdict == "no difference shown"


def test_missed_targets_are_judged_by_wins(group) -> None:
    field = "rounds_to_target"
    first = group("a", dict.fromkeys(range(6), 10), field)
    second = group("b", {0: 12, 1: None, 2: 14, 3: 16, 4: None, 5: 11}, field)
    found = pair(first, second, field)
    assert found.difference.mean == pytest.approx((-2 - 4 - 6 - 1) / 4)  # of the pairs that both reached
    # six of six: p = 2 / 64 = 0.031
    assert (found.wins, found.losses, found.by, found.verdict) == (6, 0, "wins", "better")
    assert pair(second, first, field).verdict == "worse"


def test_a_target_that_neither_reached_is_a_tie(group) -> None:
    none = {1: None, 2: None}
    found = pair(group("a", none, "flops_to_target"), group("b", none, "flops_to_target"), "flops_to_target")
    assert (found.difference, found.wins, found.losses) == (None, 0, 0)
    assert found.verdict == "no difference shown"


def test_sign_test_by_hand() -> None:
    assert sign_test(5, 0) == pytest.approx(2 / 32)
    assert sign_test(1, 4) == pytest.approx(2 * (1 + 5) / 32)
    assert sign_test(0, 0) == 1
    assert sign_test(3, 3) == 1


def test_an_outcome_that_was_not_measured_is_not_a_loss(group) -> None:
    measured, other = group("a", dict.fromkeys(range(6), 0.5)), group("b", dict.fromkeys(range(6), 0.5), "loss")
    found = pair(measured, other, "accuracy")
    assert (found.pairs, found.wins, found.verdict) == (0, 0, "no difference shown")


@pytest.fixture
def grid(make_run):
    """Two algorithms by two rates, two seeds; scaffold is 0.1 better at rate 1, and fedprox ran at rate 3 only."""
    settings = [("fedavg", 1, 0.5), ("fedavg", 2, 0.6), ("scaffold", 1, 0.6), ("scaffold", 2, 0.6), ("fedprox", 3, 0.9)]
    return group_runs(
        make_run("x", seed, summary={"accuracy": value}, algorithm={"name": name, "learning_rate": rate})
        for name, rate, value in settings
        for seed in (1, 2)
    )


def differences(groups, text):
    found = pair_all(groups, "accuracy", find_baseline(groups, text))
    return {(one.first, one.second): round(one.difference.mean, 6) for one in found}


@pytest.mark.parametrize("text", ["FedAvg", "fedavg", "algorithm.name=fedavg", "algorithm.name = FedAvg"])
def test_a_baseline_of_several_settings_is_compared_setting_by_setting(grid, text) -> None:
    assert differences(grid, text) == {
        ("SCAFFOLD, η = 1", "FedAvg, η = 1"): 0.1,
        ("SCAFFOLD, η = 2", "FedAvg, η = 2"): 0.0,
    }
    assert find_baseline(grid, text).title == "FedAvg, other settings equal"


@pytest.mark.parametrize("text", ["FedAvg, η = 1", "fedavg, η = 1"])
def test_a_baseline_of_one_setting_is_compared_with_all_others(grid, text) -> None:
    assert differences(grid, text) == {
        ("FedAvg, η = 2", "FedAvg, η = 1"): 0.1,
        ("SCAFFOLD, η = 1", "FedAvg, η = 1"): 0.1,
        ("SCAFFOLD, η = 2", "FedAvg, η = 1"): 0.1,
        ("FedProx, η = 3", "FedAvg, η = 1"): 0.4,
    }


def test_a_baseline_may_be_a_number_or_an_experiment(grid, make_run) -> None:
    assert {second for _, second in differences(grid, "algorithm.learning_rate=1.0")} == {
        "FedAvg, η = 1",
        "SCAFFOLD, η = 1",
    }
    named = group_runs(make_run(name, summary={"accuracy": 0.5}) for name in ("b", "a", "c"))
    assert list(differences(named, "A")) == [("b", "a"), ("c", "a")]
    assert list(differences(named, None)) == [("a", "b"), ("c", "b")]


def test_an_unknown_baseline_is_an_error(grid) -> None:
    with pytest.raises(ConfigError, match="no group of runs is 'fedsgd'"):
        find_baseline(grid, "fedsgd")
    with pytest.raises(ConfigError, match=r"did you mean 'algorithm\.learning_rate'"):
        find_baseline(grid, "algorithm.learning_rat=1")
    with pytest.raises(ConfigError, match=r"there are: algorithm\.learning_rate=1; algorithm\.learning_rate=2"):
        find_baseline(grid, "algorithm.learning_rate=7")
    with pytest.raises(ConfigError, match=r"all runs are 'algorithm\.name=fedavg'"):
        find_baseline([group for group in grid if group.label.startswith("FedAvg")], "algorithm.name=fedavg")
