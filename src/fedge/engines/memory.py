"""Control whether glibc keeps freed memory or returns it to the system."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt's parameter numbers


def keep_freed_memory(num_bytes: int = 1 << 30) -> None:
    """Let glibc reuse blocks up to this size instead of returning them to the system after every operation.

    Optimiser steps allocate and free vectors of megabytes; fetching their pages each time doubles the cost. Other C
    libraries do not have this setting and do not need it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, num_bytes)
        mallopt(_TRIM_THRESHOLD, num_bytes)


def return_freed_memory() -> None:
    """Return freed memory to the system now; glibc would keep it for later.

    Buffers of several threads are interleaved, so glibc on its own returns only what is at the end of the heap.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
