"""Evaluation as an exchange: what clients are asked to measure, and the sums that they answer with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from fedge.core.layout import Tree

Measure = Literal["test", "train", "user", "trained"]
"""Which model on which data of a client's own: the one sent on its test set or on its training set; its personal model
on its test set; the model that it reaches by a round's local training, on its test set."""

Sums = dict[str, float]
"""`count` samples, their total `loss`, and how many are `correct` (of labels, the total recall; of values, absent)."""


class Question(NamedTuple):
    """What some clients are asked to measure. It is charged neither as bytes nor as messages."""

    measure: Measure
    down: Tree  # variables of the model; for "trained", what the exchange of a round sends
    clients: Sequence[int]
    work: str | None = None  # for "trained": by which work
    coded: Tree | None = None  # `down` as it travels, if that is not the same

    def told(self) -> dict[str, str | None]:
        """Return the plain values that travel beside `down`."""
        return {"measure": self.measure, "work": self.work}


def add_up(answers: Iterable[Mapping[str, float]]) -> Sums:
    """Return the sums over several answers, added in their order."""
    found: Sums = {}
    for sums in answers:
        found = {name: found.get(name, 0.0) + value for name, value in sums.items()}
    return found


def means(sums: Mapping[str, float]) -> dict[str, float]:
    """Return accuracy, where there is one, and loss over all samples that were counted."""
    found = {"accuracy": sums["correct"] / sums["count"]} if "correct" in sums else {}
    return found | {"loss": sums["loss"] / sums["count"]}
