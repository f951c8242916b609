import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.schedules import Amounts, Seen
from schedules.scheduling import follow, moment, plan


def losses(*values: float) -> list[Seen]:
    return [Seen(loss=value) for value in values]


def metrics(*values: float, higher_is_better: bool = True) -> list[Seen]:
    return [Seen(metric=value, higher_is_better=higher_is_better) for value in values]


def test_error_follows_the_rolling_mean_of_the_loss() -> None:
    rule = {"name": "error", "window": 2}
    found = follow(plan(local_steps=rule, learning_rate=rule), losses(10, 6, 2, 0, 0), Amounts(60, 0.4))
    # windows: (10, 6) is F_0 = 8, (6, 2) is 4, (2, 0) is 1, (0, 0) is 0
    # 60*(1/2)^(1/3) = 47.6, 60*(1/8)^(1/3) = 30
    assert [each.work for each in found] == [60, 60, 60, 48, 30, 1]
    assert [each.rate for each in found[:5]] == pytest.approx([0.4, 0.4, 0.4, 0.4 * 0.5**0.5, 0.4 * 0.125**0.5])
    assert 0 < found[5].rate < 1e-6  # not 0: some algorithms divide by it


def test_steps_never_grow_with_the_error_but_the_rate_may() -> None:
    rule = {"name": "error", "window": 1}
    found = follow(plan(local_steps=rule, learning_rate=rule), losses(1, 4), Amounts(7, 0.1))[-1]
    assert found == Amounts(7, pytest.approx(0.2))


def test_a_round_without_a_loss_does_not_count() -> None:
    rule = {"name": "error", "window": 2}
    found = follow(plan(local_steps=rule), [*losses(8), Seen(), *losses(8), Seen(), *losses(0, 0)])
    assert [each.work for each in found] == [10, 10, 10, 10, 10, 8, 1]  # 10*(1/2)^(1/3) = 7.94


def test_a_loss_that_starts_at_zero_changes_nothing() -> None:
    assert follow(plan(local_steps={"name": "error", "window": 1}), losses(0, 3))[-1].work == 10


def test_the_window_is_a_hundred_rounds() -> None:
    found = follow(plan(local_steps="error"), losses(*[8] * 100, *[1] * 100))
    assert [each.work for each in found[:101]] == [10] * 101
    assert found[200].work == 5  # all 8s have left the window: 10*(1/8)^(1/3)
    assert found[199].work == 6  # one has not: 10*(1.07/8)^(1/3) = 5.11


def test_step_drops_once_after_its_patience() -> None:
    rule = {"name": "step", "patience": 3}
    table = plan(local_steps=rule, learning_rate=rule, server_learning_rate=rule)
    found = follow(table, metrics(0.5, 0.6, 0.6, 0.4, 0.7, 0.7, 0.7, 0.7, 0.9, 0.8, 0.8, 0.8, 0.8), Amounts(12, 0.4, 2))
    assert [each.work for each in found] == [12] * 8 + [2] * 6  # 1.2 rounded up, after three times 0.7 without gain
    assert found[7:9] == [Amounts(12, 0.4, 2), Amounts(2, 0.04, 0.2)]
    assert found[-1] == found[8]


def test_rounds_that_are_not_evaluated_do_not_count() -> None:
    table = plan(local_steps={"name": "step", "patience": 2})
    found = follow(table, [*metrics(0.5), Seen(), Seen(), *metrics(0.5), Seen(), *metrics(0.5)])
    assert [each.work for each in found] == [10] * 6 + [1]


def test_a_lower_loss_is_better() -> None:
    table = plan(local_steps={"name": "step", "patience": 2})
    falling = follow(table, metrics(3, 2, 1, 0, -1, higher_is_better=False))
    rising = follow(table, metrics(1, 2, 3, higher_is_better=False))
    assert [falling[-1].work, rising[-1].work] == [10, 1]


@pytest.mark.parametrize(("tol", "work"), [(0, 10), (0.09, 10), (0.1, 1), (0.2, 1)])
def test_a_gain_must_be_larger_than_the_tolerance(tol: float, work: int) -> None:
    table = plan(local_steps={"name": "step", "patience": 2, "tol": tol})
    assert follow(table, metrics(0, 0.05, 0.1))[-1].work == work


def test_patience_is_ten_and_the_factor_ten() -> None:
    found = follow(plan(learning_rate="step"), metrics(*[0.5] * 12))
    assert [each.rate for each in found] == [0.4] * 11 + [pytest.approx(0.04)] * 2


@pytest.mark.parametrize(("rule", "needed"), [("step", True), ("error", False)])
def test_rules_that_need_the_metric(rule: str, needed: bool) -> None:
    assert plan(local_steps=rule).needs_metric == needed


seen = st.builds(
    Seen, loss=st.none() | st.floats(0, 10), metric=st.none() | st.floats(0, 1), higher_is_better=st.booleans()
)


@settings(max_examples=60, deadline=None)
@given(st.lists(seen, max_size=20), st.integers(1, 5), st.integers(1, 4))
def test_a_checkpoint_in_any_round_changes_nothing(history: list[Seen], window: int, patience: int) -> None:
    table = plan(local_steps={"name": "error", "window": window}, learning_rate={"name": "step", "patience": patience})
    state = table.init()
    base = Amounts(50, 0.4)
    found = [table.amounts(base, moment(1), state)]
    for round, after in enumerate(history, start=2):
        before = str(state)
        state, old = table.observe(state, after), state
        assert str(old) == before  # a state is a value: a checkpoint may still hold it
        found.append(table.amounts(base, moment(round), state))
    assert follow(table, history, base) == found  # `follow` saves and loads in every round
