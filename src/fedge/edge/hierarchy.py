"""Cells that train separately and merge periodically: their server states, and how these are merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from fedge.core import message
from fedge.core.drive import Outcome
from fedge.core.layout import Tree, nest, pick
from fedge.core.reduce import average
from fedge.core.slots import Slot
from fedge.edge.clock import Norms


class Hierarchy:
    """The server states of all cells; `base` is the result of the last merge. Without cells there is one state."""

    def __init__(self, slots: Mapping[str, Slot], state: Tree, num_cells: int, equal: bool = False) -> None:
        """With `equal`, all cells with at least one participant have the same weight in a merge."""
        self._slots, self._equal = slots, equal
        self.base = state
        self.states = [state] * num_cells
        self._participants = np.zeros(num_cells, np.int64)  # since the last merge

    @property
    def num_bytes(self) -> int:
        """The encoded size of a state."""
        return message.size(message.NoMeta(), self.base)

    def take(self, cells: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        """Adopt the outcomes of a round in these cells."""
        for cell, outcome in zip(cells, outcomes, strict=True):
            self.states[cell] = outcome.state
            if not outcome.void:
                self._participants[cell] += len(outcome.replies[0].ids)

    def grow(self, change: Callable[[Tree], Tree]) -> None:
        """Apply `change`, which adapts a state to more clients, to all states."""
        before, self.base = self.base, change(self.base)
        self.states = [self.base if state is before else change(state) for state in self.states]

    def merged(self) -> Tree:
        """Return the result of merging now; cells without participants are skipped."""
        cells = np.flatnonzero(self._participants)
        if not len(cells):
            return self.base
        weights = [1] * len(cells) if self._equal else self._participants[cells].tolist()
        return merge(self._slots, self.base, [self.states[i] for i in cells], weights)

    def merge(self, weights: Callable[[Tree], Tensor] | None, norms: Norms) -> float | None:
        """Merge: all cells, empty ones too, continue from the merged state.

        Returns the mean divergence of the cells' `weights` from the merged ones; None without participants, or if
        `weights` is None.
        """
        merged = self.merged()
        distances = []
        if weights:
            goal, cells = weights(merged), np.flatnonzero(self._participants)
            distances = [divergence(weights(self.states[cell]), goal, norms) for cell in cells]
        self.base = merged
        self.states = [merged] * len(self.states)
        self._participants[:] = 0
        return float(np.mean(distances)) if distances else None

    def state(self) -> Tree:
        """Return the base and all states that differ from it, for a checkpoint."""
        found = nest("base", self.base)
        for cell, state in enumerate(self.states):
            if state is not self.base:
                found |= nest(str(cell), state)
        return found | {"participants": torch.from_numpy(self._participants.copy())}

    def restore(self, tensors: Tree) -> None:
        self.base = pick("base", tensors)
        self.states = [pick(str(cell), tensors) or self.base for cell in range(len(self.states))]
        self._participants = tensors["participants"].numpy().copy()


def merge(slots: Mapping[str, Slot], base: Tree, states: Sequence[Tree], weights: Sequence[float]) -> Tree:
    """Merge states of cells that started from `base`, slot by slot as declared. A single state is returned as is."""
    if len(states) == 1:
        return states[0]
    return {
        name: _merge(slots[name.rpartition(".")[2]], value, [state[name] for state in states], weights)
        for name, value in base.items()
    }


def divergence(own: Tensor, merged: Tensor, norms: Norms) -> float:
    """Return ||own - merged|| / ||merged||; if `merged` is all zero, 0 if `own` is too, else infinity."""
    difference = (own - merged).double()
    distance = difference.abs().sum() if norms == "l1_l2" else difference.norm()
    return float(distance / merged.double().norm()) if distance > 0 else 0.0


def _merge(slot: Slot, base: Tensor, values: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    if slot.merge == "max":
        return reduce(torch.maximum, values)
    if slot.merge == "sum":
        return reduce(lambda total, value: total + (value - base), values, base)
    return average(torch.stack(list(values)), weights)
