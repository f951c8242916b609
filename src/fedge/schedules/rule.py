"""What a schedule is: a value that says how much of something a round does.

What a schedule remembers from round to round is a state of plain numbers and lists, which goes into the checkpoint as
JSON; the schedule itself never changes.
"""

from __future__ import annotations

from math import ceil
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from fedge.core.errors import ConfigError
from fedge.core.parts import Part
from fedge.core.schema import Options

Quantity = Literal["local_steps", "learning_rate", "server_learning_rate"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
"""What can be scheduled, in the order in which it is decided."""

State = dict[str, Any]

_ROUNDING = 1e-9  # so that 60*27^(-1/3) is 20, not 21


class Amounts(NamedTuple):
    """How much a round does."""

    work: int  # local steps, or local epochs
    rate: float  # of the clients
    server_rate: float | None = None  # None: the algorithm has none
    epochs: bool = False  # whether work counts epochs

    @property
    def num_steps(self) -> int | None:
        return None if self.epochs else self.work

    @property
    def num_epochs(self) -> int | None:
        return self.work if self.epochs else None

    def of(self, quantity: Quantity) -> float:
        """One of them; a ConfigError if there is none to schedule."""
        if quantity == "local_steps":
            return self.work
        if quantity == "learning_rate":
            return self.rate
        if self.server_rate is None:
            raise ConfigError(
                "schedule.server_learning_rate: the algorithm has no server_learning_rate to schedule; "
                "leave it out, or choose an algorithm that has one, such as fedsgd"
            )
        return self.server_rate

    def having(self, quantity: Quantity, value: float) -> Amounts:
        """The same with another value of one of them; work is rounded up, and never below 1."""
        if quantity == "local_steps":
            return self._replace(work=max(1, ceil(value - _ROUNDING)))
        if quantity == "learning_rate":
            return self._replace(rate=value)
        return self._replace(server_rate=value)


class Moment(NamedTuple):
    """What is known when a round begins."""

    round: int  # from 1
    fraction: float  # share of all clients that a round asks
    cohort: int  # how many these are
    batch_size: int
    sim_seconds: float = 0.0  # simulated, of all rounds before


class Seen(NamedTuple):
    """What is known when a round has ended; None: not measured."""

    loss: float | None = None  # mean first-step loss of the cohort
    metric: float | None = None  # on the validation split
    higher_is_better: bool = True


class Plateau(NamedTuple):
    """How long the validation metric has not improved."""

    best: float | None = None
    waited: int = 0  # evaluations in a row without a better one

    def after(self, seen: Seen, tol: float = 0.0) -> Plateau:
        """Return the same after another round; better means better by more than `tol`."""
        if seen.metric is None:
            return self
        gain = 0.0 if self.best is None else (seen.metric - self.best) * (1 if seen.higher_is_better else -1)
        return Plateau(seen.metric) if self.best is None or gain > tol else Plateau(self.best, self.waited + 1)


class Rule(Options):
    """One schedule; its options, and what it makes of a round."""

    part = Part("schedule", "fedge.schedules")
    quantities: ClassVar[tuple[Quantity, ...]] = QUANTITIES
    """What it is defined for."""

    @property
    def needs_metric(self) -> bool:
        """Whether it looks at the validation metric."""
        return False

    @property
    def needs_seconds(self) -> bool:
        """Whether it looks at the simulated seconds so far."""
        return False

    def unfit(self, quantity: Quantity) -> Rule | None:
        """The rule, of those that it is made of, that is not defined for a quantity; None if all are."""
        return None if quantity in self.quantities else self

    def check(self, quantity: Quantity, base: Amounts) -> None:
        """A ConfigError if it cannot schedule what the algorithm was given."""

    def init(self) -> State:
        """What it remembers before the first round."""
        return {}

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        """The quantity in a round, not rounded.

        `amounts` are the algorithm's own, but for quantities that are already decided for this round.
        """
        raise TypeError(f"{type(self).__name__} does not say what it does")

    def observe(self, state: State, seen: Seen) -> State:
        """What it remembers after a round."""
        return state


def refuse_epochs(quantity: Quantity, base: Amounts, name: str) -> None:
    """A ConfigError where a formula counts minibatch steps and the algorithm epochs."""
    if base.epochs:
        raise ConfigError(
            f"schedule.{quantity}: {name} counts minibatch steps, but the algorithm was given epochs; "
            "set algorithm.local_steps instead of local_epochs"
        )
