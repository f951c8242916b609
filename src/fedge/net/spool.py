"""Uploads on disk, from their first byte until they are reduced."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import torch

from fedge.core.errors import StorageError
from fedge.core.storage import writing


class Upload(NamedTuple):
    """What a client uploaded; `file` is None if nothing of it can be read."""

    file: Path | None
    num_bytes: int
    changed: bool  # the client wrote private state of this version

    def open(self) -> memoryview:
        """Return its bytes: of a file, pages that are read when they are looked at, and no open descriptor.

        A reducer may hold those of all clients at once. Raises FileNotFoundError if the file was deleted.
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
    """The folder of the uploads of one exchange. What an earlier server left is deleted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.clear()

    def clear(self) -> None:
        """Delete all uploads. Late ones may still be arriving: so the folder stays."""
        with writing(self._folder, "start the server again"):
            self._folder.mkdir(parents=True, exist_ok=True)
            for file in self._folder.iterdir():
                file.unlink(missing_ok=True)

    def check_space(self, num_bytes: int) -> None:
        """Raise a StorageError if the disk has no room for this much."""
        free = shutil.disk_usage(self._folder).free
        if num_bytes > free:
            raise StorageError(
                f"{self._folder}: expected room for {num_bytes} bytes of uploads, got {free}; "
                "free some space, or ask fewer clients (selection.fraction)"
            )

    async def take(self, name: str, chunks: AsyncIterator[bytes], count: Callable[[int], bool]) -> Path | None:
        """Write chunks to a new file and return it; None, and no file, once `count` of a chunk's bytes says stop.

        What `chunks` raises is raised, without a file; a StorageError if the disk is full.
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
                        await asyncio.to_thread(_write_all, descriptor, chunk)
                finally:
                    os.close(descriptor)
        except BaseException:
            file.unlink(missing_ok=True)
            raise
        return file


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
