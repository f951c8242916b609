"""What a process does with memory that it has freed."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt's names for them


def keep_freed_memory(num_bytes: int = 1 << 30) -> None:
    """Let glibc reuse blocks up to this size instead of giving them back to the system after every operation.

    Optimiser steps make and drop vectors of megabytes; fetching the pages anew each time doubles their cost. Other C
    libraries have no such setting and need none.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, num_bytes)
        mallopt(_TRIM_THRESHOLD, num_bytes)


def return_freed_memory() -> None:
    """Give freed memory back to the system now, where glibc would keep it for later.

    Buffers of several threads lie among one another, so that glibc itself gives back only what is at the end.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
