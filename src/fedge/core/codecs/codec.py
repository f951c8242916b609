"""Codecs: encode trees as compressed streams and decode them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedge.core.codecs import stream
from fedge.core.codecs.chain import Chain
from fedge.core.codecs.stream import Group
from fedge.core.errors import ModelError, StreamError, TrainingError
from fedge.core.layout import Layout, Tree, pick
from fedge.core.placement import dtype_name
from fedge.core.slots import Slot

STREAM = "stream"
RESIDUAL = "residual"
_DTYPES = {"float32": torch.float32, "float64": torch.float64}


class Codec(Protocol):
    """Encodes a tree for transmission and decodes it; `down` is the tree that the client had received."""

    def encode(self, upload: Tree, down: Tree, rng: np.random.Generator) -> Tree: ...
    def decode(self, wire: Tree, down: Tree) -> Tree: ...


@dataclass(frozen=True)
class ChainCodec:
    """Encodes the parameters of a tree through chains into one stream; other entries travel unchanged beside it.

    The chain `up` encodes the change of each vector relative to its anchor. Moments use the chain `moments` and the
    indices of the first vector that has an anchor (or of the first vector if none has). Values that a stream drops
    decode to those sent down. An entry `residual.y` is added to the change of y and does not travel.
    """

    layout: Layout
    slots: Mapping[str, Slot]
    up: Chain | None
    moments: Chain | None = None

    def encode(self, upload: Tree, down: Tree, rng: np.random.Generator) -> Tree:
        groups = self._groups(upload)
        names = [name for group in groups for name in group.names]
        residuals = pick(RESIDUAL, upload)
        passed = {n: v for n, v in upload.items() if n not in names and not n.startswith(f"{RESIDUAL}.")}
        if not names:
            return passed
        changes = {name: self.change(name, upload[name], down, residuals.get(name)).numpy() for name in names}
        for name, change in changes.items():
            self._check(name, change)
        written = stream.write(self.layout, groups, changes, rng)
        return {_key(names, upload[names[0]].dtype): torch.frombuffer(written, dtype=torch.uint8), **passed}

    def decode(self, wire: Tree, down: Tree) -> Tree:
        keys = [name for name in wire if name.startswith(f"{STREAM}:")]
        passed = {name: value for name, value in wire.items() if name not in keys}
        if lost := [name for group in self._groups(passed) for name in group.names]:
            names = ", ".join(lost)
            raise StreamError(f"expected {names} in a stream, got it uncompressed; use the same codec on both ends")
        if not keys:
            return passed
        if len(keys) > 1:
            raise StreamError(f"expected one stream, got {', '.join(keys)}")
        groups, dtype = self._announced(keys[0])
        data = wire[keys[0]]
        if data.dtype != torch.uint8 or data.dim() != 1:
            raise StreamError(f"expected a stream of bytes, got {data.dtype} of shape {tuple(data.shape)}")
        vectors = {name: self._start(name, down, dtype) for group in groups for name in group.names}
        stream.read(
            self.layout,
            groups,
            np.ascontiguousarray(data.numpy()),
            {name: vector.numpy() for name, vector in vectors.items()},
        )
        return {**passed, **vectors}

    def change(self, name: str, value: Tensor, down: Tree, residual: Tensor | None) -> Tensor:
        """Return the change to send for a vector, or for the rows of a block."""
        anchor = self.slots[name].anchor
        change = value.detach() if anchor is None else value.detach() - down[anchor]
        change = change.to(torch.float32)
        return change if residual is None else change + residual

    def lost(self, change: Tensor) -> Tensor:
        """Return the part of a change that a stream encoded by `up` drops; zeros if it is not finite.

        `encode` rejects changes that are not finite.
        """
        if self.up is None or not np.isfinite(change.numpy()).all():
            return torch.zeros_like(change)
        return change - torch.from_numpy(stream.carried(self.layout, self.up, change.numpy()))

    def leads(self, names: Iterable[str]) -> list[str]:
        """Return the names encoded by `up`, in slot order."""
        return self._params(names, moment=False) if self.up else []

    def _params(self, names: Iterable[str], moment: bool) -> list[str]:
        found = set(names)
        return [n for n, slot in self.slots.items() if n in found and slot.kind == "params" and slot.moment == moment]

    def _groups(self, names: Iterable[str]) -> list[Group]:
        groups = [Group((name,), (self.up.quantiser,), self.up) for name in self.leads(names) if self.up]
        moments = tuple(self._params(names, moment=True))
        if not moments or self.moments is None:
            return groups
        quantisers = (self.moments.quantiser,) * len(moments)
        if not groups:
            return [Group(moments, quantisers, self.moments)]
        i = next((i for i, group in enumerate(groups) if self.slots[group.names[0]].anchor is not None), 0)
        groups[i] = Group(groups[i].names + moments, groups[i].quantisers + quantisers, groups[i].chain)
        return groups

    def _announced(self, key: str) -> tuple[list[Group], torch.dtype]:
        """Return the groups and the dtype of the vectors that a stream's key names."""
        _, dtype, names = key.split(":") if key.count(":") == 2 else ("", "", "")
        groups = self._groups(names.split(","))
        if dtype not in _DTYPES or [name for group in groups for name in group.names] != names.split(","):
            raise StreamError(f"{key!r} is not a stream of this codec; give both ends the same configuration")
        return groups, _DTYPES[dtype]

    def _check(self, name: str, change: NDArray[np.float32]) -> None:
        if change.shape != (self.layout.num_params,):
            expected = f"one client's vector of {self.layout.num_params} values"
            raise ModelError(f"{name!r}: expected {expected}, got shape {change.shape}")
        if not np.isfinite(change).all():
            raise TrainingError(
                f"the change of {name!r} is not finite in float32; lower the learning rate or clip gradients"
            )

    def _start(self, name: str, down: Tree, dtype: torch.dtype) -> Tensor:
        """Return the vector that a change is added to."""
        anchor = self.slots[name].anchor
        if anchor is None:
            return torch.zeros(self.layout.num_params, dtype=dtype)
        if anchor not in down:
            raise StreamError(f"the stream holds the change of {anchor!r}, which was not sent in this exchange")
        return down[anchor].detach().clone()


def _key(names: Sequence[str], dtype: torch.dtype) -> str:
    return f"{STREAM}:{dtype_name(dtype)}:{','.join(names)}"
