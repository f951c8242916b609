"""Schedules that depend only on the round number, or on nothing."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from fedge.schedules.rule import Amounts, Moment, Quantity, Rule, State

_USUAL_BATCH = 32  # the batch size that learning rates refer to


class Fixed(Rule, tag="fixed"):
    """Always v0, the algorithm's own value."""

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        return amounts.of(quantity)


class Exp(Rule, tag="exp"):
    """v0 * decay^(r-1): decays by the same factor every round."""

    decay: Annotated[float, Meta(gt=0, le=1, description="factor per round")]

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        return float(amounts.of(quantity) * self.decay ** (moment.round - 1))


class RoundsRule(Rule, tag="rounds"):
    """K = K0 * r^(-1/3), rate = eta0 * r^(-1/2): decays with the round number (K-rounds, eta-rounds)."""

    quantities: ClassVar[tuple[Quantity, ...]] = ("local_steps", "learning_rate")

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        return float(amounts.of(quantity) * moment.round ** -ROOT[quantity])


class Warmup(Rule, tag="warmup"):
    """Increases linearly from v0/10 to v0 over the first epochs, then stays at v0."""

    quantities: ClassVar[tuple[Quantity, ...]] = ("learning_rate", "server_learning_rate")
    epochs: Annotated[
        float, Meta(gt=0, description="passes over all clients; it takes round(epochs/fraction) rounds")
    ] = 5.0

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        rounds = round(self.epochs / moment.fraction)
        share = min(1.0, (moment.round - 1) / rounds) if rounds else 1.0
        return amounts.of(quantity) * (0.1 + 0.9 * share)


class PostLocal(Rule, tag="post_local"):
    """One local step or epoch during the first epochs, then v0 (post-local SGD)."""

    quantities: ClassVar[tuple[Quantity, ...]] = ("local_steps",)
    delay: Annotated[float, Meta(ge=0, description="epochs with one step each; they take round(delay/fraction) rounds")]

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        return 1 if moment.round <= round(self.delay / moment.fraction) else amounts.of(quantity)


class BatchScaled(Rule, tag="batch_scaled"):
    """eta0 * batch_size/32: scales a rate given for batches of 32 linearly with the batch size."""

    quantities: ClassVar[tuple[Quantity, ...]] = ("learning_rate",)

    def value(self, quantity: Quantity, amounts: Amounts, moment: Moment, state: State) -> float:
        return amounts.of(quantity) * moment.batch_size / _USUAL_BATCH


ROOT: dict[Quantity, float] = {"local_steps": 1 / 3, "learning_rate": 1 / 2}
"""Mills (2023), chapter 5: over time, the optimal K decays as a cube root and the optimal rate as a square root."""
