"""Memory of the machine and of processes."""

from __future__ import annotations

import resource
import sys
from multiprocessing import active_children
from pathlib import Path

_UNKNOWN_MB = 4096.0  # if the system does not report it
_SHARE = 0.8  # leave the rest to other processes
_KB = 1024 if sys.platform == "darwin" else 1  # units of ru_maxrss in one KB


def usable_memory_mb() -> float:
    """Return 80% of the memory that is free now, on the machine and within the container's limit, in MB."""
    free = [found for found in (_free_mb(), _free_in_container_mb()) if found is not None]
    return _SHARE * min(free, default=_UNKNOWN_MB)


def peak_memory_mb() -> float:
    """Return the peak memory of this process plus the current private memory of its workers, in MB."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KB / 1024
    return own + sum(_private_mb(worker.pid) for worker in active_children())


def _private_mb(process: int | None) -> float:
    """Return the private memory of a process, without memory shared by forking; 0 if unknown."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended, or this is another system
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def _free_mb() -> float | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) / 1024 if found else None


def _free_in_container_mb() -> float | None:
    folder = Path("/sys/fs/cgroup")
    try:
        most, used = (int((folder / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no container, or `max`: no limit
        return None
    return (most - used) / 2**20
