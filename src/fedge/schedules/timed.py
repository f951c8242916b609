"""Schedules that follow the number of the round, or nothing at all."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from fedge.schedules.rule import Amounts, Moment, Quantity, Rule, State

_USUAL_BATCH = 32  # that learning rates are given for


class Fixed(Rule, tag="fixed"):
    """Always v0, what the algorithm was given."""

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        return amounts.of(quantity)


class Exp(Rule, tag="exp"):
    """v0 * decay^(r-1): falls by the same factor every round."""

    decay: Annotated[float, Meta(gt=0, le=1, description="factor from one round to the next")]

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        return float(amounts.of(quantity) * self.decay ** (moment.round - 1))


class RoundsRule(Rule, tag="rounds"):
    """K: K0 * r^(-1/3), rate: eta0 * r^(-1/2): falls with the number of rounds (K-rounds and eta-rounds)."""

    quantities: ClassVar[tuple[Quantity, ...]] = ("local_steps", "learning_rate")

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        return float(amounts.of(quantity) * moment.round ** -ROOT[quantity])


class Warmup(Rule, tag="warmup"):
    """From v0/10 evenly up to v0 over the first epochs, then v0."""

    quantities: ClassVar[tuple[Quantity, ...]] = ("learning_rate", "server_learning_rate")
    epochs: Annotated[
        float, Meta(gt=0, description="passes over all clients; it takes round(epochs/fraction) rounds")
    ] = 5.0

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        rounds = round(self.epochs / moment.fraction)
        share = min(1.0, (moment.round - 1) / rounds) if rounds else 1.0
        return amounts.of(quantity) * (0.1 + 0.9 * share)


class PostLocal(Rule, tag="post_local"):
    """One local step or epoch for the first epochs, then all of them (post-local SGD)."""

    quantities: ClassVar[tuple[Quantity, ...]] = ("local_steps",)
    delay: Annotated[float, Meta(ge=0, description="epochs with one step each; they take round(delay/fraction) rounds")]

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        return 1 if moment.round <= round(self.delay / moment.fraction) else amounts.of(quantity)


class BatchScaled(Rule, tag="batch_scaled"):
    """eta0 * batch_size/32: the rate is given for batches of 32 and grows with them."""

    quantities: ClassVar[tuple[Quantity, ...]] = ("learning_rate",)

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        return amounts.of(quantity) * moment.batch_size / _USUAL_BATCH


ROOT: dict[Quantity, float] = {"local_steps": 1 / 3, "learning_rate": 1 / 2}
"""Chapter 5 of the thesis: with time, the best K falls as a third root and the best rate as a square root."""
