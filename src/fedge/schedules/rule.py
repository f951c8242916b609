"""The schedule contract: a value that determines a quantity in each round.

A schedule's memory between rounds is a state of plain numbers and lists, stored in the checkpoint as JSON; the
schedule itself never changes.
"""

from __future__ import annotations

from math import ceil
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from fedge.core.errors import ConfigError
from fedge.core.parts import Part
from fedge.core.schema import Options

Quantity = Literal["local_steps", "learning_rate", "server_learning_rate"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
"""The quantities that can be scheduled, in the order in which they are determined."""

State = dict[str, Any]

_ROUNDING = 1e-9  # so that 60*27^(-1/3) is 20, not 21


class Amounts(NamedTuple):
    """The scheduled quantities of a round."""

    work: int  # local steps, or local epochs
    rate: float  # of the clients
    server_rate: float | None = None  # None: the algorithm has no server rate
    epochs: bool = False  # whether work counts epochs

    @property
    def num_steps(self) -> int | None:
        return None if self.epochs else self.work

    @property
    def num_epochs(self) -> int | None:
        return self.work if self.epochs else None

    def of(self, quantity: Quantity) -> float:
        """Return one quantity; raises ConfigError if the algorithm does not have it."""
        if quantity == "local_steps":
            return self.work
        if quantity == "learning_rate":
            return self.rate
        if self.server_rate is None:
            raise ConfigError(
                "schedule.server_learning_rate: the algorithm has no server_learning_rate to schedule; "
                "drop the schedule, or choose an algorithm that has one, such as fedsgd"
            )
        return self.server_rate

    def having(self, quantity: Quantity, value: float) -> Amounts:
        """Return the amounts with one quantity replaced; work is rounded up and at least 1."""
        if quantity == "local_steps":
            return self._replace(work=max(1, ceil(value - _ROUNDING)))
        if quantity == "learning_rate":
            return self._replace(rate=value)
        return self._replace(server_rate=value)


class Moment(NamedTuple):
    """What is known at the start of a round."""

    round: int  # from 1
    fraction: float  # share of all clients asked in a round
    cohort: int  # number of clients asked
    batch_size: int
    sim_seconds: float = 0.0  # simulated seconds of all earlier rounds


class Seen(NamedTuple):
    """What is known at the end of a round; None: not measured."""

    loss: float | None = None  # mean first-step loss of the cohort
    metric: float | None = None  # on the validation split
    higher_is_better: bool = True


class Plateau(NamedTuple):
    """Tracks how long the validation metric has not improved."""

    best: float | None = None
    waited: int = 0  # consecutive evaluations without an improvement

    def after(self, seen: Seen, tol: float = 0.0) -> Plateau:
        """Return the plateau after another round; only improvements of more than `tol` count."""
        if seen.metric is None:
            return self
        gain = 0.0 if self.best is None else (seen.metric - self.best) * (1 if seen.higher_is_better else -1)
        return Plateau(seen.metric) if self.best is None or gain > tol else Plateau(self.best, self.waited + 1)


class Rule(Options):
    """Base class of schedules: options, and the value in each round."""

    part = Part("schedule", "fedge.schedules")
    quantities: ClassVar[tuple[Quantity, ...]] = QUANTITIES
    """The quantities that it is defined for."""

    @property
    def needs_metric(self) -> bool:
        """Whether it uses the validation metric."""
        return False

    @property
    def needs_seconds(self) -> bool:
        """Whether it uses the simulated seconds so far."""
        return False

    def unfit(self, quantity: Quantity) -> Rule | None:
        """Return the rule, among those it consists of, that is not defined for a quantity; None if all are."""
        return None if quantity in self.quantities else self

    def check(self, quantity: Quantity, base: Amounts) -> None:
        """Raise ConfigError if it cannot schedule the algorithm's settings."""

    def init(self) -> State:
        """Return the initial state."""
        return {}

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        """Return the unrounded quantity in a round.

        `amounts` are the algorithm's own, except quantities already determined for this round.
        """
        raise TypeError(f"{type(self).__name__} must define value")

    def observe(self, state: State, seen: Seen) -> State:
        """Return the state after a round."""
        return state


def refuse_epochs(quantity: Quantity, base: Amounts, name: str) -> None:
    """Raise ConfigError if a formula counts minibatch steps but the algorithm epochs."""
    if base.epochs:
        raise ConfigError(
            f"schedule.{quantity}: {name} counts minibatch steps, but the algorithm trains by epochs; "
            "set algorithm.local_steps instead of local_epochs"
        )
