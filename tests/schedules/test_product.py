"""Several schedules on one quantity, whose factors are multiplied."""

from typing import Any

import msgspec
import pytest

from fedge.core.errors import ConfigError
from fedge.core.schema import read
from fedge.schedules import Amounts, SchedulePlan, Seen
from schedules.scheduling import amounts, follow, plan


def product(*rules: Any) -> dict[str, Any]:
    return {"name": "product", "rules": list(rules)}


def test_warm_up_and_large_batches() -> None:
    rules = product({"name": "warmup", "epochs": 5}, "batch_scaled")
    found = amounts(plan(learning_rate=rules), (1, 6, 11), Amounts(10, 0.32), fraction=0.5, batch_size=64)
    # 10 rounds of warm-up: 0.1, 0.1 + 0.9*5/10, 1; and twice the batch of 32
    assert [each.rate for each in found] == pytest.approx([0.32 * factor * 2 for factor in (0.1, 0.55, 1)])


def test_steps_are_rounded_once() -> None:
    exp = {"name": "exp", "decay": 0.4}
    # 6*0.4*0.4 = 0.96, rounded up; rounded in between it would be 3*0.4 = 1.2 and then 2
    assert [each.work for each in amounts(plan(local_steps=product(exp, exp)), [2], Amounts(6, 0.1))] == [1]


def test_each_rule_has_its_own_state() -> None:
    step = {"name": "step", "factor": 2}
    table = plan(learning_rate=product(step | {"patience": 1}, step | {"patience": 3}))
    found = follow(table, [Seen(metric=0.5)] * 5, Amounts(10, 0.4))
    # no improvement in rounds 2 to 5: halved after the second evaluation, and again after the fourth
    assert [each.rate for each in found] == pytest.approx([0.4, 0.4, 0.2, 0.2, 0.1, 0.1])


@pytest.mark.parametrize(("rules", "needed"), [(["warmup", "step"], True), (["warmup", "batch_scaled"], False)])
def test_a_product_needs_the_metric_if_one_rule_does(rules: list[str], needed: bool) -> None:
    assert plan(learning_rate=product(*rules)).needs_metric is needed


def test_every_rule_must_fit_the_quantity() -> None:
    with pytest.raises(ConfigError, match=r"^schedule: local_steps cannot follow 'warmup'; expected one of fixed"):
        plan(local_steps=product("rounds", "warmup"))


def test_every_rule_is_checked() -> None:
    rule = product("fixed", {"name": "hyperbolic", "b": 1, "mu": 20})
    with pytest.raises(ConfigError, match=r"hyperbolic expects algorithm\.learning_rate below"):
        plan(server_learning_rate=rule).check(Amounts(10, 0.1, 1.0))


def test_an_empty_product_is_rejected() -> None:
    with pytest.raises(ConfigError, match="rules: expected at least one schedule"):
        plan(learning_rate=product())


def test_it_survives_the_configuration_file() -> None:
    table = plan(learning_rate=product({"name": "warmup", "epochs": 3}, "batch_scaled"))
    assert read(msgspec.to_builtins(table), SchedulePlan) == table
