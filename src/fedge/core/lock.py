"""A lock that lets one process at a time write a run.

The lock is a `flock`, which the system releases when its process ends for any reason. The file's content only names
the holder, for people and readers: its process id and, because ids are reused, its start time.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path

from fedge.core.errors import RunError


class Lock:
    """An exclusive lock, held from construction to `release`; raises RunError if another process holds it."""

    def __init__(self, path: Path) -> None:
        self._file: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._file, 0)
            pid = os.getpid()
            os.write(self._file, f"{pid} {_start(pid)}\n".encode())
        except BlockingIOError:
            self._close()
            raise RunError(f"{path.parent} is in use by {_name(path)}; wait until it ends, or stop it") from None
        except OSError:
            self._close()
            raise
        # A forked worker shares the lock and would keep holding it after this process was killed.
        this = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _close_shared(this))

    def release(self) -> None:
        if self._file is not None:
            os.ftruncate(self._file, 0)
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def holder(path: Path) -> int | None:
    """Return the id of the process that holds the lock; None if it has ended. Only reads the file, takes no lock."""
    pid, start = _read(path)
    return pid if pid is not None and _lives(pid) and _start(pid) == start else None


def _close_shared(lock: weakref.ref[Lock]) -> None:
    if (mine := lock()) is not None:
        mine._close()


def _name(path: Path) -> str:
    pid, _ = _read(path)
    return "another process" if pid is None else f"process {pid}"


def _read(path: Path) -> tuple[int | None, str]:
    try:
        pid, _, start = path.read_text().strip().partition(" ")
        return int(pid) or None, start
    except (OSError, ValueError):
        return None, ""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # sends nothing
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _start(pid: int) -> str:
    """Return a process's start time in ticks since boot; empty if it has ended or the system does not report it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    state, start = fields[0], fields[19]
    return "" if state in "ZX" else start
