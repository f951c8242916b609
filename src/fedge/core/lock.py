"""A lock that lets one process at a time write a run.

The lock is a `flock`, which the system releases when its process ends for any reason. The file's content only names
the holder, for people and readers: its process id and, because ids are reused, its start time; and, because other
machines may read the same disk, the host's name and the id of its boot.
"""

from __future__ import annotations

import fcntl
import os
import socket
import weakref
from pathlib import Path
from typing import NamedTuple

from fedge.core.errors import RunError
from fedge.core.machine import process_stat


class Lock:
    """An exclusive lock, held from construction to `release`; raises RunError if another process holds it."""

    def __init__(self, path: Path) -> None:
        self._file: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._file, 0)
            pid = os.getpid()
            os.write(self._file, f"{pid} {_start(pid)} {socket.gethostname()} {_boot()}\n".encode())
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


class _Named(NamedTuple):
    """The content of a lock file. Versions before 0.2 wrote neither host nor boot."""

    pid: int | None = None
    start: str = ""
    host: str = ""
    boot: str = ""


def holder(path: Path) -> int | None:
    """Return the id of the process of this machine that holds the lock; None if it has ended. Takes no lock."""
    named = _read(path)
    if named.pid is None or (named.boot and named.boot != _boot()):
        return None
    return named.pid if _lives(named.pid) and _start(named.pid) == named.start else None


def remote_holder(path: Path) -> str | None:
    """Return the other host that the lock file names; None if it names this one or none. Its process may have ended."""
    named = _read(path)
    return named.host if named.pid is not None and named.host not in ("", socket.gethostname()) else None


def _close_shared(lock: weakref.ref[Lock]) -> None:
    if (mine := lock()) is not None:
        mine._close()


def _name(path: Path) -> str:
    named = _read(path)
    host = f" on {named.host}" if named.host not in ("", socket.gethostname()) else ""
    return "another process" if named.pid is None else f"process {named.pid}{host}"


def _read(path: Path) -> _Named:
    try:
        pid, *rest = path.read_text().rstrip("\n").split(" ")[:4]
        return _Named(int(pid) or None, *rest)
    except (OSError, ValueError):
        return _Named()


def _boot() -> str:
    """Return the id of this boot of the machine; empty if the system provides none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


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
    fields = process_stat(pid)
    return fields[19] if fields and fields[0] not in "ZX" else ""
