"""What processes ask of the machine they run on."""

from __future__ import annotations

import ctypes
import os
import signal

_DIE_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG
_SHARE = "FEDGE_CORES"


def num_processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def take_share(num_processes: int) -> None:
    """Leave to this process, and to those that it starts, its share of the processors."""
    os.environ[_SHARE] = str(max(1, num_processors() // num_processes))


def num_shared() -> int:
    """The share of the processors that this process was given; all, if none was."""
    given = os.environ.get(_SHARE, "")
    return max(1, int(given)) if given.isdigit() else num_processors()


def die_with_parent(parent: int) -> None:
    """Have the system end this process with its parent, where it can.

    To the system the parent is the thread that forked: if that ends, so does this process.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it was too late
        os._exit(1)
