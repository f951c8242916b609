import pytest

from fedge.report.groups import RunGroup
from fedge.report.pairs import pair, pair_all, sign_test


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
def test_more_is_better_or_worse_as_the_outcome_says(group, field, verdict) -> None:
    # differences 0.2, 0.2, 0.21: the interval is 0.2033 ± 0.0143
    first, second = group("a", {1: 0.4, 2: 0.5, 3: 0.61}, field), group("b", {1: 0.2, 2: 0.3, 3: 0.4}, field)
    assert pair(first, second, field).verdict == verdict
    opposite = {"better": "worse", "worse": "better", "higher": "lower"}
    assert pair(second, first, field).verdict == opposite[verdict]


def test_seeds_of_one_side_alone_do_not_count(group) -> None:
    assert pair(group("a", {1: 0.3, 5: 0.9}), group("b", {1: 0.2, 6: 0.1}), "accuracy").pairs == 1
    assert pair_all([group("a", {1: 0.3}), group("b", {2: 0.3})], "accuracy") == []


def test_one_pair_shows_nothing(group) -> None:
    found = pair(group("a", {1: 0.9}), group("b", {1: 0.1}), "accuracy")
    assert (found.difference.mean, found.difference.low) == (pytest.approx(0.8), None)
    assert found.verdict == "no difference shown"


def test_where_a_target_was_not_reached_wins_decide(group) -> None:
    field = "rounds_to_target"
    first = group("a", dict.fromkeys(range(6), 10), field)
    second = group("b", {0: 12, 1: None, 2: 14, 3: 16, 4: None, 5: 11}, field)
    found = pair(first, second, field)
    assert found.difference.mean == pytest.approx((-2 - 4 - 6 - 1) / 4)  # of the pairs that both reached
    # six of six: p = 2 / 64 = 0.031
    assert (found.wins, found.losses, found.by, found.verdict) == (6, 0, "wins", "better")
    assert pair(second, first, field).verdict == "worse"


def test_reached_by_none_is_a_tie(group) -> None:
    none = {1: None, 2: None}
    found = pair(group("a", none, "flops_to_target"), group("b", none, "flops_to_target"), "flops_to_target")
    assert (found.difference, found.wins, found.losses) == (None, 0, 0)
    assert found.verdict == "no difference shown"


def test_sign_test_by_hand() -> None:
    assert sign_test(5, 0) == pytest.approx(2 / 32)
    assert sign_test(1, 4) == pytest.approx(2 * (1 + 5) / 32)
    assert sign_test(0, 0) == 1
    assert sign_test(3, 3) == 1


def test_what_was_not_measured_does_not_lose(group) -> None:
    measured, other = group("a", dict.fromkeys(range(6), 0.5)), group("b", dict.fromkeys(range(6), 0.5), "loss")
    found = pair(measured, other, "accuracy")
    assert (found.pairs, found.wins, found.verdict) == (0, 0, "no difference shown")
