"""Cells that learn each on their own, and agree from time to time: states of servers, and how they are merged."""

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
    """The server states of all cells; `base` is what they last agreed on. Without cells there is one, which agrees."""

    def __init__(self, slots: Mapping[str, Slot], state: Tree, num_cells: int, equal: bool = False) -> None:
        """`equal`: all cells in which anybody took part have the same weight in a merge."""
        self._slots, self._equal = slots, equal
        self.base = state
        self.states = [state] * num_cells
        self._participants = np.zeros(num_cells, np.int64)  # since the last merge

    @property
    def num_bytes(self) -> int:
        """The size of a state that travels."""
        return message.size(message.NoMeta(), self.base)

    def take(self, cells: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        """Go on from what a round came to in these cells."""
        for cell, outcome in zip(cells, outcomes, strict=True):
            self.states[cell] = outcome.state
            if not outcome.void:
                self._participants[cell] += len(outcome.replies[0].ids)

    def grow(self, change: Callable[[Tree], Tree]) -> None:
        """Adapt all states to more clients."""
        before, self.base = self.base, change(self.base)
        self.states = [self.base if state is before else change(state) for state in self.states]

    def merged(self) -> Tree:
        """Return what a merge would result in now; cells without participants are skipped."""
        cells = np.flatnonzero(self._participants)
        if not len(cells):
            return self.base
        weights = [1] * len(cells) if self._equal else self._participants[cells].tolist()
        return merge(self._slots, self.base, [self.states[i] for i in cells], weights)

    def merge(self, weights: Callable[[Tree], Tensor] | None, norms: Norms) -> float | None:
        """Have all cells, empty ones too, go on from the merge.

        Says how far cells were from it, in their `weights`, on average; None if nobody took part, or nobody asks.
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
        """For a checkpoint: the base, and the states of cells that have gone on from it."""
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
    """States of cells that all went on from `base` become one, slot by slot as declared; of one, it is that one."""
    if len(states) == 1:
        return states[0]
    return {
        name: _merge(slots[name.rpartition(".")[2]], value, [state[name] for state in states], weights)
        for name, value in base.items()
    }


def divergence(own: Tensor, merged: Tensor, norms: Norms) -> float:
    """||own - merged|| / ||merged||; of merged weights that are all zero, 0 if own ones are, else infinite."""
    difference = (own - merged).double()
    distance = difference.abs().sum() if norms == "l1_l2" else difference.norm()
    return float(distance / merged.double().norm()) if distance > 0 else 0.0


def _merge(slot: Slot, base: Tensor, values: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    if slot.merge == "max":
        return reduce(torch.maximum, values)
    if slot.merge == "sum":
        return reduce(lambda total, value: total + (value - base), values, base)
    return average(torch.stack(list(values)), weights)
