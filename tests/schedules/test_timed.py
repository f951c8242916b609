from collections.abc import Iterable

import pytest

from fedge.schedules import Amounts, SchedulePlan
from schedules.scheduling import amounts, plan


def steps(table: SchedulePlan, rounds: Iterable[int], base: int) -> list[int]:
    return [found.work for found in amounts(table, rounds, Amounts(base, 0.1))]


def test_fixed_is_the_algorithms_own_value() -> None:
    table = plan(local_steps="fixed", learning_rate="fixed", server_learning_rate="fixed")
    assert amounts(table, (1, 1000)) == [Amounts(10, 0.4, 1.0)] * 2


def test_exp_counts_rounds_from_one() -> None:
    rule = {"name": "exp", "decay": 0.5}
    found = amounts(plan(local_steps=rule, learning_rate=rule, server_learning_rate=rule), range(1, 6))
    assert [each.work for each in found] == [10, 5, 3, 2, 1]  # 10, 5, 2.5, 1.25, 0.625 rounded up
    assert [each.rate for each in found] == [0.4, 0.2, 0.1, 0.05, 0.025]
    assert [each.server_rate for each in found] == [1, 0.5, 0.25, 0.125, 0.0625]


@pytest.mark.parametrize(
    ("start", "decay", "rounds", "fraction"),
    [(10, 0.9996, 4000, 0.5506), (3, 0.9996, 4000, 0.6467), (33, 0.999, 4000, 0.2601), (10, 0.995, 3000, 0.15287)],
)
def test_exp_saves_the_steps_that_mills_hu_min_2023_report(
    start: int, decay: float, rounds: int, fraction: float
) -> None:
    used = sum(steps(plan(local_steps={"name": "exp", "decay": decay}), range(1, rounds + 1), start))
    assert used / (start * rounds) == pytest.approx(fraction, abs=0.00005)


def test_rounds_is_a_cube_root_for_steps_and_a_square_root_for_the_rate() -> None:
    found = amounts(plan(local_steps="rounds", learning_rate="rounds"), (1, 4, 27, 64), Amounts(60, 3.0))
    # 60, 60/1.587 = 37.8, 60/3 and 60/4; as floats 60*27^(-1/3) is just above 20
    assert [each.work for each in found] == [60, 38, 20, 15]
    assert [each.rate for each in found] == pytest.approx([3, 1.5, 3 / 27**0.5, 0.375], rel=1e-15)


@pytest.mark.parametrize(("start", "fraction"), [(60, 0.0776), (80, 0.0755)])
def test_rounds_saves_the_steps_that_mills_2023_reports(start: int, fraction: float) -> None:
    used = sum(steps(plan(local_steps="rounds"), range(1, 10_001), start))
    assert used / (start * 10_000) == pytest.approx(fraction, abs=0.00005)


def test_warmup_starts_at_a_tenth() -> None:
    # 2 epochs with half of the clients per round: 4 rounds of 0.9/4 each
    table = plan(learning_rate={"name": "warmup", "epochs": 2}, server_learning_rate={"name": "warmup", "epochs": 2})
    found = amounts(table, range(1, 7), fraction=0.5)
    assert [each.rate for each in found] == pytest.approx([0.04, 0.13, 0.22, 0.31, 0.4, 0.4])
    assert [each.server_rate for each in found] == pytest.approx([0.1, 0.325, 0.55, 0.775, 1, 1])


def test_warmup_takes_five_epochs() -> None:
    found = amounts(plan(learning_rate="warmup"), (1, 26, 50, 51), fraction=0.1)
    assert [each.rate for each in found] == pytest.approx([0.04, 0.22, 0.3928, 0.4])


def test_a_warmup_of_less_than_half_a_round_is_none() -> None:
    assert amounts(plan(learning_rate={"name": "warmup", "epochs": 0.4}), [1], fraction=1)[0].rate == 0.4


def test_post_local_begins_after_the_delay() -> None:
    table = plan(local_steps={"name": "post_local", "delay": 3})
    assert [each.work for each in amounts(table, range(1, 8), fraction=0.7)] == [1, 1, 1, 1, 10, 10, 10]  # 3/0.7 = 4.3
    assert amounts(plan(local_steps={"name": "post_local", "delay": 0}), [1])[0].work == 10


def test_post_local_counts_epochs_too() -> None:
    table = plan(local_steps={"name": "post_local", "delay": 1})
    found = amounts(table, (1, 2), Amounts(4, 0.1, epochs=True), fraction=1)
    assert [(each.num_steps, each.num_epochs) for each in found] == [(None, 1), (None, 4)]


@pytest.mark.parametrize(("batch_size", "rate"), [(32, 0.4), (128, 1.6), (8, 0.1)])
def test_batch_scaled(batch_size: int, rate: float) -> None:
    assert amounts(plan(learning_rate="batch_scaled"), [7], batch_size=batch_size)[0].rate == pytest.approx(rate)
