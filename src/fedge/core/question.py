"""Evaluation as an exchange: what clients measure, and the sums that they answer with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch

from fedge.core.errors import StreamError
from fedge.core.layout import Tree

Measure = Literal["test", "train", "validation", "user", "trained"]
"""Which model a client evaluates on which of its own data: the model sent, on its test set, its training set or its
held-out validation samples; its personal model on its test set; or the model after a round's local training, on its
test set."""

WITH_METRICS: tuple[Measure, ...] = ("test", "validation")
"""Measures of the global model on held-out data: their sums include those of the run's metrics."""

Sums = dict[str, Any]
"""Floats: `count` of samples, their total `loss`, and the number `correct` (for labels the total recall, for values
absent). For each metric of the run, float64 vectors named `metric.vector`."""


class Question(NamedTuple):
    """A request to measure a model. It is charged neither as bytes nor as messages."""

    measure: Measure
    down: Tree  # variables of the model; for "trained", the `down` of a round's exchange
    clients: Sequence[int]
    work: str | None = None  # for "trained": the name of the work
    coded: Tree | None = None  # encoded `down`, if it differs

    def told(self) -> dict[str, str | None]:
        """Return the plain values that travel with `down`."""
        return {"measure": self.measure, "work": self.work}


def add_up(answers: Iterable[Mapping[str, Any]]) -> Sums:
    """Return the sums over several answers, added in their order."""
    found: Sums = {}
    for sums in answers:
        found = {name: found.get(name, 0.0) + value for name, value in sums.items()}
    return found


def means(sums: Mapping[str, float]) -> dict[str, float]:
    """Return the mean loss and, if defined, the accuracy over all counted samples."""
    found = {"accuracy": sums["correct"] / sums["count"]} if "correct" in sums else {}
    return found | {"loss": sums["loss"] / sums["count"]}


def is_vector(name: str) -> bool:
    """Whether a sum is a vector of a metric."""
    return "." in name


def write_sums(sums: Mapping[str, Any] | None) -> Tree:
    """Return an answer as a tree of scalars and vectors; an empty one if there is no answer."""
    return {
        name: value if is_vector(name) else torch.tensor([value], dtype=torch.float64)
        for name, value in (sums or {}).items()
    }


def read_sums(tree: Tree) -> Sums | None:
    """Return the answer in a received tree; raises StreamError if it is not made of float64 scalars and vectors."""
    for name, value in tree.items():
        fits = value.dim() == 1 and len(value) if is_vector(name) else value.shape == (1,)
        if value.dtype != torch.float64 or not fits:
            expected = "a vector of float64" if is_vector(name) else "float64[1]"
            raise StreamError(
                f"expected the sum {name!r} as {expected}, got {value.dtype} of shape {list(value.shape)}"
            )
    return {name: value if is_vector(name) else float(value) for name, value in tree.items()} or None
