"""The schedules of an experiment, one per quantity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, get_args

from msgspec import Meta

from fedge.core.schema import Options, tag
from fedge.schedules.product import Product, SingleRule
from fedge.schedules.rule import QUANTITIES, Amounts, Moment, Quantity, Rule, Seen, State

ScheduleRule = SingleRule | Product
SCHEDULES: tuple[type[Rule], ...] = get_args(ScheduleRule)


class SchedulePlan(Options, tag=False):
    """Quantities that change from round to round; those without a schedule keep the algorithm's value."""

    local_steps: Annotated[
        ScheduleRule | None, Meta(description="schedule of local_steps or local_epochs, rounded up, at least 1")
    ] = None
    learning_rate: Annotated[ScheduleRule | None, Meta(description="schedule of the clients' learning_rate")] = None
    server_learning_rate: Annotated[ScheduleRule | None, Meta(description="schedule of server_learning_rate")] = None

    def __post_init__(self) -> None:
        for quantity, rule in self._rules():
            if (unfit := rule.unfit(quantity)) is not None:
                fitting = ", ".join(str(tag(kind)) for kind in SCHEDULES if quantity in kind.quantities)
                raise ValueError(f"{quantity} cannot follow {tag(type(unfit))!r}; expected one of {fitting}")

    @property
    def needs_metric(self) -> bool:
        """Whether a schedule uses the validation metric."""
        return any(rule.needs_metric for _, rule in self._rules())

    @property
    def timed(self) -> list[Quantity]:
        """The quantities whose schedules use simulated seconds."""
        return [quantity for quantity, rule in self._rules() if rule.needs_seconds]

    def check(self, base: Amounts) -> None:
        """Raise ConfigError if the algorithm's settings cannot be scheduled this way."""
        for quantity, rule in self._rules():
            base.of(quantity)
            rule.check(quantity, base)

    def init(self) -> State:
        """Return the initial state of all schedules: plain numbers and lists."""
        return {quantity: rule.init() for quantity, rule in self._rules()}

    def amounts(self, base: Amounts, moment: Moment, state: State) -> Amounts:
        """Return the amounts of a round from the algorithm's own: first the steps, then the rates."""
        found = base
        for quantity, rule in self._rules():
            found = found.having(quantity, rule.value(quantity, found, moment, state[quantity]))
        return found

    def observe(self, state: State, seen: Seen) -> State:
        """Return the state of all schedules after a round."""
        return {quantity: rule.observe(state[quantity], seen) for quantity, rule in self._rules()}

    def _rules(self) -> Iterator[tuple[Quantity, Rule]]:
        for quantity in QUANTITIES:
            rule: Rule | None = getattr(self, quantity)
            if rule is not None:
                yield quantity, rule
