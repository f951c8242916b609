"""Schedules that follow training progress: the loss, or a metric that no longer improves."""

from __future__ import annotations

from math import fsum
from typing import Annotated, ClassVar

from msgspec import Meta

from fedge.schedules.rule import Amounts, Moment, Plateau, Quantity, Rule, Seen, State
from fedge.schedules.timed import ROOT

_LEAST = 1e-12  # smallest ratio to the first loss: SCAFFOLD and FedGBO divide by the rate, which must not be 0


class ErrorRule(Rule, tag="error"):
    """K = K0 * (F_r/F_0)^(1/3), rate = eta0 * (F_r/F_0)^(1/2): decays with the training loss (K-error, eta-error).

    F_r is the mean of the clients' first-step losses over the last `window` rounds, F_0 over the first ones. Until the
    window is full, the value is v0. K never exceeds K0.
    """

    quantities: ClassVar[tuple[Quantity, ...]] = ("local_steps", "learning_rate")
    window: Annotated[int, Meta(ge=1, description="rounds over which F_r is averaged")] = 100

    def init(self) -> State:
        return {"losses": [], "first": None}

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        v0 = amounts.of(quantity)
        if not state["first"]:
            return v0
        ratio = max(_mean(state["losses"]) / state["first"], _LEAST)
        value = float(v0 * ratio ** ROOT[quantity])
        return min(value, v0) if quantity == "local_steps" else value

    def observe(self, state: State, seen: Seen) -> State:
        if seen.loss is None:
            return state
        losses = [*state["losses"], seen.loss][-self.window :]
        first = state["first"]
        if first is None and len(losses) == self.window:
            first = _mean(losses)
        return {"losses": losses, "first": first}


class StepRule(Rule, tag="step"):
    """v0, then v0/factor once the validation metric no longer improves (K-step, eta-step); drops only once."""

    factor: Annotated[float, Meta(ge=1, description="divisor of the value")] = 10.0
    patience: Annotated[int, Meta(ge=1, description="consecutive evaluations without an improvement")] = 10
    tol: Annotated[float, Meta(ge=0, description="minimum improvement that counts")] = 0.0

    @property
    def needs_metric(self) -> bool:
        return True

    def init(self) -> State:
        return Plateau()._asdict()

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        v0 = amounts.of(quantity)
        return v0 / self.factor if state["waited"] >= self.patience else v0

    def observe(self, state: State, seen: Seen) -> State:
        plateau = Plateau(**state)
        # once dropped, the value stays down
        return state if plateau.waited >= self.patience else plateau.after(seen, self.tol)._asdict()


def _mean(losses: list[float]) -> float:
    return fsum(losses) / len(losses)
