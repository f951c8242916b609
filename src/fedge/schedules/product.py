"""The product of several schedules on one quantity."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Annotated

from msgspec import Meta

from fedge.core.parts import short_name
from fedge.core.schema import tag
from fedge.schedules.derived import Hyperbolic, Optimal
from fedge.schedules.measured import ErrorRule, StepRule
from fedge.schedules.rule import Amounts, Moment, Quantity, Rule, Seen, State
from fedge.schedules.timed import BatchScaled, Exp, Fixed, PostLocal, RoundsRule, Warmup

SingleRule = Fixed | Exp | RoundsRule | ErrorRule | StepRule | Hyperbolic | Optimal | Warmup | PostLocal | BatchScaled


class Product(Rule, tag="product"):
    """v0 times the factors of several schedules; the factor of a schedule is its value divided by v0."""

    rules: Annotated[list[SingleRule], Meta(description="the schedules, each a name or a table")]

    def __post_init__(self) -> None:
        if not self.rules:
            raise ValueError('rules: expected at least one schedule, such as ["warmup", "batch_scaled"], got none')

    @property
    def needs_metric(self) -> bool:
        return any(rule.needs_metric for rule in self.rules)

    @property
    def needs_seconds(self) -> bool:
        return any(rule.needs_seconds for rule in self.rules)

    def unfit(self, quantity: Quantity) -> Rule | None:
        return next((found for rule in self.rules if (found := rule.unfit(quantity)) is not None), None)

    def check(self, quantity: Quantity, base: Amounts) -> None:
        for rule in self.rules:
            rule.check(quantity, base)

    def init(self) -> State:
        return {name: rule.init() for name, rule in self._named()}

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        v0 = amounts.of(quantity)
        return v0 * prod(rule.value(quantity, amounts, moment, state[name]) / v0 for name, rule in self._named())

    def observe(self, state: State, seen: Seen) -> State:
        return {name: rule.observe(state[name], seen) for name, rule in self._named()}

    def _named(self) -> Iterator[tuple[str, Rule]]:
        """Return each rule with its state key, by which a resumed run detects whether the rules have changed."""
        return ((f"{i} {short_name(str(tag(type(rule))))}", rule) for i, rule in enumerate(self.rules))
