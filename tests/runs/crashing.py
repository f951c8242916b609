"""Runs that crash at every call that touches the disk, one forked process per call.

`crashing.py FOLDER` makes the runs FOLDER/MODE/0, 1, ..., each with a file such as 0.saved that lists the
rounds known to be saved, and prints a line for each: its mode, and how its process ended. Modes:

kill, fail              SIGKILL, or ENOSPC, at the 1st, 2nd, ... call
kill-half, fail-half    the same after half of the data, at calls that write
kill-restore, fail-restore
                        SIGKILL, or ENOSPC, at the 1st, 2nd, ... call of a process that restores a run of 3 rounds
race                    SIGKILL from outside, some time after a checkpoint
"""

import errno
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch

from fedge.core.errors import StorageError
from fedge.runs.directory import RunDirectory

_FULL_DISK = 7
_WRITES = ("write", "pwrite")
_OTHERS = ("open", "posix_fallocate", "fsync", "replace")
_RACE_S = (0.0, 0.004, 0.009, 0.015, 0.022, 0.03, 0.04, 0.055)


def work(path: Path, rounds: range) -> None:
    """Save every second round; in round r, clients r % 3 and (r + 1) % 3 store 10 r + their number."""
    with RunDirectory.create(path, {"name": "crashing"}, {"fedge": "test"}) as run:
        kept = run.kept_store({"c": torch.zeros(2)})
        for r in rounds:
            for client in (r % 3, (r + 1) % 3):
                kept.write(client, {"c": torch.full((2,), 10.0 * r + client)})
            run.append({"round": r})
            if r % 2 == 0:
                run.save({"x": torch.full((3,), float(r))}, {"round": r})
                with path.with_name(f"{path.name}.saved").open("a") as saved:
                    saved.write(f"{r}\n")
        run.write_summary({"rounds": len(rounds)})


def restore(path: Path) -> None:
    """Go back to round 2 and repeat round 3."""
    with RunDirectory.open(path) as run:
        run.restore()
        run.append({"round": 3})


def sabotage(fatal: int, mode: str) -> None:
    """Make the call of this number fail. Nothing is synced: a dead process loses nothing in the cache."""
    calls = count()

    def end() -> None:
        if mode.startswith("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def wrap(name: str) -> None:
        real = getattr(os, name)

        def call(*args: Any, **options: Any) -> Any:
            if next(calls) == fatal:
                if half:
                    file, data, *rest = args
                    real(file, bytes(data)[: len(data) // 2], *rest)
                end()
            return real(*args, **options)

        setattr(os, name, call)

    half = mode.endswith("half")
    os.fsync = lambda file: None
    for name in _WRITES if half else _WRITES + _OTHERS:
        wrap(name)


def spawn(task: Callable[[], None], fatal: int | None, mode: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        if fatal is not None:
            sabotage(fatal, mode)
        task()
        code = 0
    except StorageError:
        code = _FULL_DISK
    finally:
        os._exit(code)


def wait(pid: int, mode: str) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(mode, code, flush=True)
    return code


def race(folder: Path) -> None:
    for n, delay in enumerate(_RACE_S):
        pid = spawn(partial(work, folder / str(n), range(1, 10**9)), None, "race")
        while not (folder / f"{n}.saved").exists():
            time.sleep(0.001)
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
        wait(pid, "race")


def main(folder: Path) -> None:
    for mode in ("kill", "kill-half", "fail", "fail-half", "kill-restore", "fail-restore"):
        for n in count():
            path = folder / mode / str(n)
            task = partial(work, path, range(1, 6))
            if mode.endswith("restore"):
                work(path, range(1, 4))
                task = partial(restore, path)
            pid = spawn(task, n, mode)
            if wait(pid, mode) not in (_FULL_DISK, -signal.SIGKILL):
                break  # the run has fewer calls than that
    race(folder / "race")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
