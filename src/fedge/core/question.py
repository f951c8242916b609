"""Evaluation as an exchange: what clients are asked to measure, and the sums that they answer with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch

from fedge.core.errors import StreamError
from fedge.core.layout import Tree

Measure = Literal["test", "train", "validation", "user", "trained"]
"""Which model on which data of a client's own: the one sent on its test set, on its training set or on the samples that
it holds out of that; its personal model on its test set; the model that it reaches by a round's local training, on its
test set."""

WITH_METRICS: tuple[Measure, ...] = ("test", "validation")
"""The measures of the global model on data that it was not trained on: their sums have those of the run's metrics."""

Sums = dict[str, Any]
"""Floats: `count` samples, their total `loss`, and how many are `correct` (of labels, the total recall; of values,
absent). Of each metric of the run, float64 vectors with names `metric.vector`."""


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


def add_up(answers: Iterable[Mapping[str, Any]]) -> Sums:
    """Return the sums over several answers, added in their order."""
    found: Sums = {}
    for sums in answers:
        found = {name: found.get(name, 0.0) + value for name, value in sums.items()}
    return found


def means(sums: Mapping[str, float]) -> dict[str, float]:
    """Return accuracy, where there is one, and loss over all samples that were counted."""
    found = {"accuracy": sums["correct"] / sums["count"]} if "correct" in sums else {}
    return found | {"loss": sums["loss"] / sums["count"]}


def is_vector(name: str) -> bool:
    """Whether a sum is a vector of a metric."""
    return "." in name


def write_sums(sums: Mapping[str, Any] | None) -> Tree:
    """Return an answer as it travels: a number each, or a vector; nothing if there is no answer."""
    return {
        name: value if is_vector(name) else torch.tensor([value], dtype=torch.float64)
        for name, value in (sums or {}).items()
    }


def read_sums(tree: Tree) -> Sums | None:
    """Return the answer that travelled; a StreamError if it is not made of numbers and vectors in float64."""
    for name, value in tree.items():
        fits = value.dim() == 1 and len(value) if is_vector(name) else value.shape == (1,)
        if value.dtype != torch.float64 or not fits:
            expected = "a vector of float64" if is_vector(name) else "float64[1]"
            raise StreamError(
                f"expected the sum {name!r} as {expected}, got {value.dtype} of shape {list(value.shape)}"
            )
    return {name: value if is_vector(name) else float(value) for name, value in tree.items()} or None
