from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.errors import ConfigError
from fedge.core.schema import read, tag
from fedge.schedules import SCHEDULES, Amounts, SchedulePlan, Seen
from schedules.scheduling import BASE, amounts, follow, moment, plan


def test_an_empty_plan_changes_nothing() -> None:
    assert amounts(SchedulePlan(), (1, 500)) == [BASE, BASE]
    assert SchedulePlan().init() == {}
    SchedulePlan().check(Amounts(1, 0.1))


def test_all_quantities_together() -> None:
    assert [tag(kind) for kind in SCHEDULES] == [
        "fixed",
        "exp",
        "rounds",
        "error",
        "step",
        "hyperbolic",
        "optimal",
        "warmup",
        "post_local",
        "batch_scaled",
        "product",
    ]


@pytest.mark.parametrize(
    ("table", "fitting"),
    [
        ({"local_steps": "warmup"}, "fixed, exp, rounds, error, step, hyperbolic, optimal, post_local, product"),
        ({"local_steps": "batch_scaled"}, "fixed, exp, rounds, error, step, hyperbolic, optimal, post_local, product"),
        (
            {"learning_rate": {"name": "hyperbolic", "b": 1}},
            "fixed, exp, rounds, error, step, optimal, warmup, batch_scaled, product",
        ),
        ({"server_learning_rate": "rounds"}, "fixed, exp, step, hyperbolic, warmup, product"),
    ],
)
def test_schedules_that_do_not_fit_a_quantity_are_rejected(table: dict[str, Any], fitting: str) -> None:
    (quantity,) = table
    with pytest.raises(ConfigError, match=rf"^schedule: {quantity} cannot follow '\w+'; expected one of {fitting}$"):
        plan(**table)


def test_a_quantity_that_the_algorithm_lacks_cannot_be_scheduled() -> None:
    table = plan(server_learning_rate={"name": "exp", "decay": 0.9})
    without = Amounts(10, 0.1)
    with pytest.raises(
        ConfigError, match=r"^schedule\.server_learning_rate: the algorithm has no server_learning_rate"
    ):
        table.check(without)
    with pytest.raises(ConfigError, match="has no server_learning_rate"):
        table.amounts(without, moment(1), table.init())
    plan(learning_rate="rounds").check(without)


def test_epochs_stay_epochs() -> None:
    (found,) = amounts(plan(local_steps={"name": "exp", "decay": 0.5}), [3], Amounts(8, 0.1, epochs=True))
    assert (found.num_steps, found.num_epochs) == (None, 2)
    assert (BASE.num_steps, BASE.num_epochs) == (10, None)


def test_each_quantity_has_its_own_state() -> None:
    table = plan(local_steps={"name": "step", "patience": 1}, learning_rate={"name": "step", "patience": 5})
    assert set(table.init()) == {"local_steps", "learning_rate"}
    last = follow(table, [Seen(metric=0.5)] * 2)[-1]
    assert (last.work, last.rate) == (1, 0.4)


def test_a_plan_survives_the_configuration_file() -> None:
    table = plan(local_steps={"name": "error", "window": 7}, server_learning_rate="warmup")
    assert read(msgspec.to_builtins(table), SchedulePlan) == table


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.integers(1, 10_000), st.floats(0.5, 1))
def test_work_is_between_one_and_the_algorithms_own(work: int, round: int, decay: float) -> None:
    for rule in ({"name": "exp", "decay": decay}, "rounds", {"name": "hyperbolic", "b": 0}):
        (found,) = amounts(plan(local_steps=rule), [round], Amounts(work, 0.1))
        assert isinstance(found.work, int)
        assert 1 <= found.work <= work
