"""Disks with little space, for what must survive that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def filled(disk: Path, free_bytes: int) -> Iterator[None]:
    """Leave only so many bytes of a disk free, until the end."""
    ballast = disk / "ballast"
    space = os.statvfs(disk)
    ballast.write_bytes(bytes(space.f_bavail * space.f_frsize - free_bytes))
    try:
        yield
    finally:
        ballast.unlink()
