"""The spool: uploads on disk, from their first byte until they are reduced."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import torch

from fedge.core.errors import StorageError
from fedge.core.storage import write_all, writing


class Upload(NamedTuple):
    """A client's upload; `file` is None if it was rejected before it was read."""

    file: Path | None
    num_bytes: int
    changed: bool  # the client stored private state for this version

    def open(self) -> memoryview:
        """Return its bytes, as a memory map that is read on access and needs no open descriptor.

        A reducer may hold the maps of all clients at once. Raises FileNotFoundError if the file was deleted.
        """
        if self.file is None or not self.num_bytes:
            return memoryview(b"")
        size = self.file.stat().st_size
        try:
            pages = torch.from_file(str(self.file), shared=False, size=size, dtype=torch.uint8)
        except RuntimeError:
            self.file.stat()  # deleted meanwhile
            raise
        return pages.numpy().data


class Spool:
    """The folder for the uploads of one exchange. Leftovers of an earlier server are deleted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.clear()

    def clear(self) -> None:
        """Delete all uploads, but not the folder, since late uploads may still be arriving."""
        with writing(self._folder, "start the server again"):
            self._folder.mkdir(parents=True, exist_ok=True)
            for file in self._folder.iterdir():
                file.unlink(missing_ok=True)

    def check_space(self, num_bytes: int) -> None:
        """Raise a StorageError if the disk has less than `num_bytes` free."""
        free = shutil.disk_usage(self._folder).free
        if num_bytes > free:
            raise StorageError(
                f"{self._folder}: expected {num_bytes} bytes of free space for uploads, got {free}; "
                "free some space, or select fewer clients (selection.fraction)"
            )

    async def take(self, name: str, chunks: AsyncIterator[bytes], count: Callable[[int], bool]) -> Path | None:
        """Write chunks to a new file and return it; return None and delete it once `count` returns False for a chunk.

        If `chunks` raises, the file is deleted and the exception propagates. Raises a StorageError if the disk is full.
        """
        file = self._folder / name
        try:
            with writing(file, "start the server again"):
                descriptor = await asyncio.to_thread(os.open, file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                try:
                    async for chunk in chunks:
                        if not count(len(chunk)):
                            file.unlink(missing_ok=True)
                            return None
                        await asyncio.to_thread(write_all, descriptor, chunk)
                finally:
                    os.close(descriptor)
        except BaseException:
            file.unlink(missing_ok=True)
            raise
        return file
