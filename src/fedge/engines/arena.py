"""Memory shared between a process and its forked children, for trees of tensors.

An arena is an anonymous file, which no crash can leave behind, mapped by every process that has inherited it. Its space
is allocated before it is used: writing to a map without memory left would kill the process with SIGBUS, while a failed
allocation raises.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

import torch
from torch import Tensor

from fedge.core.errors import StorageError
from fedge.core.layout import Tree
from fedge.core.placement import Placement, Placements, arrange, end_of

_NOTHING = torch.empty(0, dtype=torch.uint8)
_GROWTH_BYTES = 1 << 18  # so that trees of nearly the same size do not grow an arena each time
_REMEDIES = {errno.EFBIG: "raise the limit on file sizes (`ulimit -f`)"}


class Arena:
    """Shared memory for one tree, or several at different offsets; writing to the same offset overwrites."""

    def __init__(self) -> None:
        self._file = _open()
        self._map = _NOTHING

    @property
    def num_bytes(self) -> int:
        """The memory of the arena, which all processes share."""
        return os.fstat(self._file.fileno()).st_size

    def put(self, tree: Tree, start: int = 0) -> Placements:
        """Copy a tree to this offset, aligned up, and return where its tensors are. Raises StorageError."""
        placements = arrange(tree, start)
        self._reserve(end_of(placements))
        for name, view in self.get(placements).items():
            view.copy_(tree[name].detach())
        return placements

    def get(self, placements: Sequence[Placement]) -> Tree:
        """Return the tree as views, not copies: the next write to the same place changes it."""
        memory = self._mapped(end_of(placements))
        return {place.name: place.view(memory) for place in placements}

    def close(self) -> None:
        """Release the memory in this process; tensors returned by `get` stay valid."""
        self._file.close()
        self._map = _NOTHING

    def _mapped(self, num_bytes: int) -> Tensor:
        """Return a map of at least this size, remapping if the file has grown, here or in another process."""
        if len(self._map) < num_bytes:
            held = self.num_bytes
            with _wanting(held):
                self._map = torch.frombuffer(mmap.mmap(self._file.fileno(), held), dtype=torch.uint8)
        return self._map

    def _reserve(self, num_bytes: int) -> None:
        held = self.num_bytes
        if num_bytes > held:
            wanted = room(num_bytes)
            with _wanting(wanted):
                _allocate(self._file.fileno(), held, wanted)


def room(num_bytes: int) -> int:
    """Return the size of an arena in which this many bytes are used."""
    return -(-num_bytes // _GROWTH_BYTES) * _GROWTH_BYTES


@contextmanager
def _wanting(num_bytes: int) -> Iterator[None]:
    """Turn an OSError into a StorageError that states the requested size and a remedy."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "free memory, or lower engine.rows or engine.workers")
        raise StorageError(
            f"memory shared with worker processes: expected room for {num_bytes} bytes, "
            f"got: {error.strerror or error}; {remedy}, then run again"
        ) from error


def _open() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("fedge"), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


def _allocate(file: int, held: int, wanted: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, held, wanted - held)
        return
    zeros = bytes(min(wanted - held, 1 << 20))
    while held < wanted:
        held += os.pwrite(file, zeros[: wanted - held], held)
