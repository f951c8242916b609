"""Placement of a tree's tensors in one flat buffer: in the tree's order, each aligned to 64 bytes.

Messages, memory shared between processes and the file of private state all use this placement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import msgspec
import numpy as np
import torch
from torch import Tensor

from fedge.core.layout import Tree

ALIGNMENT = 64  # as torch allocates: the summation order of kernels may depend on alignment
PIECE_BYTES = 1 << 20


class Placement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The placement of one tensor; `start` is a byte offset into the buffer."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        return self.start + prod(self.shape) * self.kind.itemsize

    @property
    def kind(self) -> torch.dtype:
        found = getattr(torch, self.dtype)
        assert isinstance(found, torch.dtype)
        return found

    def view(self, memory: Tensor) -> Tensor:
        """Return a view of the tensor in a buffer of bytes."""
        if self.stop == self.start:
            return torch.empty(self.shape, dtype=self.kind)
        return memory[self.start : self.stop].view(self.kind).view(self.shape)


Placements = list[Placement]
"""The placement of a tree: all that a reader of the buffer needs."""


def arrange(tree: Tree, start: int = 0) -> Placements:
    """Return placements for the tensors of a tree, one after another from `start`."""
    placements: Placements = []
    for name, value in tree.items():
        placements.append(Placement(name, dtype_name(value.dtype), tuple(value.shape), aligned(start)))
        start = placements[-1].stop
    return placements


def end_of(placements: Sequence[Placement]) -> int:
    """Return the offset at which the last tensor ends."""
    return placements[-1].stop if placements else 0


def aligned(number: int) -> int:
    """Round up to a multiple of 64."""
    return -(-number // ALIGNMENT) * ALIGNMENT


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def settle(tree: Tree) -> Tree:
    """Return a tree whose tensors are contiguous and aligned like those of a message; copies only where needed.

    A row of a larger tensor may be unaligned, and kernels might then sum in another order than on a received message.
    """
    return {
        name: value if value.is_contiguous() and value.data_ptr() % ALIGNMENT == 0 else _copy(value)
        for name, value in tree.items()
    }


def _copy(value: Tensor) -> Tensor:
    found = torch.empty(value.shape, dtype=value.dtype, device=value.device)
    return found.copy_(value)


def allocate(num_bytes: int) -> Tensor:
    """Return uninitialised bytes whose address is a multiple of 64.

    The memory comes from numpy, which requests huge pages: first use takes less than half the time.
    """
    memory = np.empty(num_bytes + ALIGNMENT - 1, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return torch.from_numpy(memory[start : start + num_bytes])


def pieces(value: Tensor) -> Iterator[memoryview]:
    """Yield the bytes of a tensor in pieces of at most 1 MiB: views if it is contiguous, otherwise copies."""
    if value.nbytes > PIECE_BYTES and not value.is_contiguous():
        for part in value.tensor_split(2) if len(value) > 1 else value:
            yield from pieces(part)
        return
    # Not `reshape(-1)`: a tensor of one value is contiguous with any stride, but `view` requires a stride of 1.
    flat = value.detach().contiguous().as_strided((value.numel(),), (1,))
    data: memoryview = flat.view(torch.uint8).numpy().data
    for start in range(0, len(data), PIECE_BYTES):
        yield data[start : start + PIECE_BYTES]
