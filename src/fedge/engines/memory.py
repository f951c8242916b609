"""Memory of the process that trains."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt's names for them
_BYTES = 1 << 30


def keep_freed_memory() -> None:
    """Let glibc reuse large blocks instead of giving them back to the system after every operation.

    Optimiser steps make and drop vectors of megabytes; fetching the pages anew each time doubles their cost. Other C
    libraries have no such setting and need none.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _BYTES)
        mallopt(_TRIM_THRESHOLD, _BYTES)
