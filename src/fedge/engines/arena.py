"""Memory that a process shares with those it forks: trees of tensors are written on one side and seen on the other.

An arena is a file without a name, which no crash can leave behind, mapped by every process that has inherited it. Its
space is allocated before it is used: writing to a map for which there is no memory left would end the process by
SIGBUS, where allocating says so.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import prod
from typing import IO

import msgspec
import torch
from torch import Tensor

from fedge.core.errors import StorageError
from fedge.core.layout import Tree

_ALIGNMENT = 64  # as torch allocates: kernels may sum in an order that depends on alignment
_GROWTH_BYTES = 1 << 18  # trees of nearly the same size do not make an arena grow each time
_REMEDIES = {errno.EFBIG: "raise the limit on file sizes (`ulimit -f`)"}


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """Where one tensor lies."""

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


Entries = list[Entry]
"""Where a tree lies: all that another process needs to see it."""


class Arena:
    """One tree at a time, or several one behind another; what is written again is overwritten."""

    def __init__(self) -> None:
        self._file = _open()
        self._map: mmap.mmap | None = None

    @property
    def num_bytes(self) -> int:
        """What the arena takes, in all processes together."""
        return os.fstat(self._file.fileno()).st_size

    def put(self, tree: Tree, start: int = 0) -> Entries:
        """Copy a tree to this place or right behind it."""
        entries = arrange(tree, start)
        self._reserve(end_of(entries))
        for entry in entries:
            self._view(entry).copy_(tree[entry.name].detach())
        return entries

    def get(self, entries: Iterable[Entry]) -> Tree:
        """The tree as it lies there, not a copy: it changes with what is written there next."""
        return {entry.name: self._view(entry) for entry in entries}

    def close(self) -> None:
        """Give up the memory, here; tensors that were got from it stay valid."""
        self._file.close()
        self._map = None

    def _view(self, entry: Entry) -> Tensor:
        if entry.stop == entry.start:
            return torch.empty(entry.shape, dtype=entry.kind)
        memory = self._mapped(entry.stop)
        return torch.frombuffer(memory, dtype=entry.kind, count=prod(entry.shape), offset=entry.start).view(entry.shape)

    def _mapped(self, num_bytes: int) -> mmap.mmap:
        """A map of at least so many bytes. It is made anew if the file has grown, here or in another process."""
        if self._map is None or len(self._map) < num_bytes:
            held = self.num_bytes
            with _wanting(held):
                self._map = mmap.mmap(self._file.fileno(), held)
        return self._map

    def _reserve(self, num_bytes: int) -> None:
        held = self.num_bytes
        if num_bytes > held:
            wanted = room(num_bytes)
            with _wanting(wanted):
                _allocate(self._file.fileno(), held, wanted)


def arrange(tree: Tree, start: int = 0) -> Entries:
    """Where the tensors of a tree come to lie."""
    entries: Entries = []
    for name, value in tree.items():
        start = _round_up(start, _ALIGNMENT)
        entries.append(Entry(name, str(value.dtype).removeprefix("torch."), tuple(value.shape), start))
        start = entries[-1].stop
    return entries


def end_of(entries: Entries) -> int:
    """Where the next tree may start."""
    return entries[-1].stop if entries else 0


def room(num_bytes: int) -> int:
    """What an arena takes in which so many bytes are used."""
    return _round_up(num_bytes, _GROWTH_BYTES)


@contextmanager
def _wanting(num_bytes: int) -> Iterator[None]:
    """Turns an OSError into a StorageError that says what was wanted and what to do."""
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


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
