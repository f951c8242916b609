"""Nearly full disks, for code that must survive them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def filled(disk: Path, free_bytes: int) -> Iterator[None]:
    """Leave only `free_bytes` bytes of a disk free inside the block."""
    ballast = disk / "ballast"
    space = os.statvfs(disk)
    ballast.write_bytes(bytes(space.f_bavail * space.f_frsize - free_bytes))
    try:
        yield
    finally:
        ballast.unlink()
