"""Properties of the machine: processors, and processes that end with their parent."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DIE_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG
_SHARE = "FEDGE_CORES"


def num_processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def take_share(num_processes: int) -> None:
    """Limit this process, and those that it starts, to an equal share of the processors."""
    os.environ[_SHARE] = str(max(1, num_processors() // num_processes))


def num_shared() -> int:
    """Return the number of processors in this process's share; all of them if no share was set."""
    given = os.environ.get(_SHARE, "")
    return max(1, int(given)) if given.isdigit() else num_processors()


def process_stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the process's name; empty if the system does not report them."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


@contextmanager
def leaving_garbage() -> Iterator[None]:
    """Fork in this context, and call `inherit_memory` first in the child: it then never collects garbage of its parent.

    Finalisers of such objects belong to the parent; those of gRPC never return in another process.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def inherit_memory() -> None:
    """Exclude all inherited objects from garbage collection, which would also copy their memory, and turn it on."""
    gc.freeze()
    gc.enable()


def die_with_parent(parent: int) -> None:
    """Have the system kill this process when its parent ends, where that is supported.

    To the system, the parent is the thread that forked: if that thread ends, so does this process.
    """
    import ctypes  # imported here, since readers of runs import this module

    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # the parent had already ended
        os._exit(1)
