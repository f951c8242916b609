"""A model as a flat vector, and the position of each tensor in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy

from fedge.core.errors import ModelError

Tree = dict[str, Tensor]
"""A set of named vectors; a scalar is a vector of length one."""

Kind = Literal["params", "stats", "scalar"]


class Entry(NamedTuple):
    """One tensor of the model and its position in the flat vector."""

    name: str
    start: int
    stop: int
    shape: tuple[int, ...]
    norm: bool  # belongs to a normalisation layer


@dataclass(frozen=True)
class Layout:
    """Describes two flat vectors: the trainable tensors of a model, and its normalisation statistics."""

    params: tuple[Entry, ...]
    stats: tuple[Entry, ...] = ()

    @staticmethod
    def of(module: nn.Module) -> Layout:
        """Return the layout of a module. Frozen parameters and other buffers are constants, not entries.

        Raises ModelError if a layer is lazy, if BatchNorm has no momentum, or if nothing is trainable.
        """
        norms = {name: part for name, part in module.named_modules() if isinstance(part, _NormBase)}
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if is_lazy(tensor):
                raise ModelError(f"model: {name} has no shape yet: its layer is lazy; give the layer its input size")
        for name, norm in norms.items():
            if norm.track_running_stats and norm.momentum is None:
                raise ModelError(
                    f"layer {name}: BatchNorm with momentum=None counts batches; give it a momentum such as 0.1"
                )
        params = [
            (name, p.shape, name.rpartition(".")[0] in norms)
            for name, p in module.named_parameters()
            if p.requires_grad
        ]
        stats = [
            (f"{name}.{statistic}".lstrip("."), buffer.shape, True)
            for name, norm in norms.items()
            for statistic in ("running_mean", "running_var")
            if (buffer := getattr(norm, statistic)) is not None
        ]
        if not params:
            raise ModelError("the model has no trainable parameter")
        return Layout(_pack(params), _pack(stats))

    @cached_property
    def num_params(self) -> int:
        return self.params[-1].stop if self.params else 0

    @cached_property
    def num_stats(self) -> int:
        return self.stats[-1].stop if self.stats else 0

    @cached_property
    def _shapes(self) -> dict[Kind, list[tuple[str, tuple[int, ...], tuple[int, ...], int]]]:
        """Name, shape, strides and start of each tensor, by kind."""
        kinds: tuple[Kind, ...] = ("params", "stats", "scalar")
        return {
            kind: [
                (e.name, e.shape, tuple(prod(e.shape[i + 1 :]) for i in range(len(e.shape))), e.start)
                for e in self.entries(kind)
            ]
            for kind in kinds
        }

    def entries(self, kind: Kind) -> tuple[Entry, ...]:
        """Return the entries of a vector of this kind; a scalar has none."""
        return {"params": self.params, "stats": self.stats, "scalar": ()}[kind]

    def size(self, kind: Kind) -> int:
        return {"params": self.num_params, "stats": self.num_stats, "scalar": 1}[kind]

    def views(self, vector: Tensor, kind: Kind = "params") -> dict[str, Tensor]:
        """Return views of the tensors in a vector `[n]` or in the rows of a block `[C, n]`, without copies."""
        # One operation per tensor: engines call this in every step.
        if not (shapes := self._shapes[kind]):
            return {}
        rows, (*jumps, one), begin = vector.shape[:-1], vector.stride(), vector.storage_offset()
        return {
            name: vector.as_strided((*rows, *shape), (*jumps, *(one * s for s in strides)), begin + one * start)
            for name, shape, strides, start in shapes
        }

    def flat(self, tensors: Iterable[Tensor]) -> Tensor:
        """Return the vector of tensors given in layout order."""
        return torch.cat([t.reshape(-1) for t in tensors])

    def part(self, keep: Callable[[Entry], bool]) -> Layout:
        """Return the layout of the selected tensors alone, packed together."""
        return Layout(
            *(_pack((e.name, e.shape, e.norm) for e in side if keep(e)) for side in (self.params, self.stats))
        )

    def places(self, part: Layout, kind: Kind) -> Iterator[tuple[slice, slice]]:
        """Yield (slice here, slice in the part) for each run of tensors that a part shares with this layout."""
        there = {e.name: e for e in part.entries(kind)}
        pending: tuple[int, int, int] | None = None  # start here, start there, length
        for entry in self.entries(kind):
            if (other := there.get(entry.name)) is None:
                continue
            length = entry.stop - entry.start
            if pending and pending[0] + pending[2] == entry.start and pending[1] + pending[2] == other.start:
                pending = (pending[0], pending[1], pending[2] + length)
                continue
            if pending:
                yield _slices(*pending)
            pending = (entry.start, other.start, length)
        if pending:
            yield _slices(*pending)

    def take(self, vector: Tensor, part: Layout, kind: Kind) -> Tensor:
        """Return the vector of a part, extracted from a vector of this layout."""
        pieces = [vector[..., here] for here, _ in self.places(part, kind)]
        return torch.cat(pieces, -1) if pieces else vector[..., :0]

    def put(self, pieces: Iterable[tuple[Layout, Tensor]], kind: Kind) -> Tensor:
        """Return a vector of this layout assembled from those of its parts; a scalar fills its whole part."""
        found: list[tuple[int, Tensor]] = []
        empty = torch.empty(0)
        for part, vector in pieces:
            empty = vector[..., :0]
            length = part.size(kind)
            if vector.shape[-1] != length:
                vector = vector.expand(*vector.shape[:-1], length)
            found += [(here.start, vector[..., there]) for here, there in self.places(part, kind)]
        if not found:
            return empty
        found.sort(key=lambda place: place[0])
        rows = np.broadcast_shapes(*(tuple(piece.shape[:-1]) for _, piece in found))  # torch's equivalent loads sympy
        return torch.cat([piece.expand(*rows, piece.shape[-1]) for _, piece in found], -1)


def nest(prefix: str, tree: Tree) -> Tree:
    """Return a tree with a prefix added to its names, to be stored inside another tree."""
    return {f"{prefix}.{name}": value for name, value in tree.items()}


def pick(prefix: str, tree: Tree) -> Tree:
    """Return the tree that `nest` stored under a prefix."""
    return {name[len(prefix) + 1 :]: value for name, value in tree.items() if name.startswith(f"{prefix}.")}


def _pack(tensors: Iterable[tuple[str, Iterable[int], bool]]) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for name, shape, norm in tensors:
        start = entries[-1].stop if entries else 0
        shape = tuple(shape)
        entries.append(Entry(name, start, start + prod(shape), shape, norm))
    return tuple(entries)


def _slices(here: int, there: int, length: int) -> tuple[slice, slice]:
    return slice(here, here + length), slice(there, there + length)
