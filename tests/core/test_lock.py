import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedge.core.errors import RunError
from fedge.core.lock import Lock, holder

HOLD = """
import os, sys, time
from pathlib import Path
from fedge.core.lock import Lock
lock = Lock(Path(sys.argv[1]))
if os.fork() == 0:
    print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str], int]]:
    """A lock file, the process that holds the lock, and the id of a worker that it forked."""
    path = tmp_path / "lock"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        try:
            yield path, process, worker
        finally:
            os.kill(worker, signal.SIGKILL)
            process.kill()


def test_a_second_process_cannot_take_the_lock(held: tuple[Path, subprocess.Popen[str], int]) -> None:
    path, process, worker = held
    assert holder(path) == process.pid
    with pytest.raises(RunError, match=rf"{path.parent} is in use by process {process.pid}; wait"):
        Lock(path)
    assert holder(path) == process.pid  # the failed attempt changed nothing

    process.kill()
    process.wait()
    os.kill(worker, 0)  # still there, and does not keep the lock
    assert holder(path) is None
    lock = Lock(path)
    assert holder(path) == os.getpid()
    lock.release()


def test_a_zombie_does_not_hold_the_lock(held: tuple[Path, subprocess.Popen[str], int]) -> None:
    path, process, _ = held
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert holder(path) is None


def test_a_released_lock_has_no_holder(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    with pytest.raises(RunError, match=f"in use by process {os.getpid()}"):
        Lock(tmp_path / "lock")
    lock.release()
    lock.release()
    assert holder(tmp_path / "lock") is None
    Lock(tmp_path / "lock").release()


@pytest.mark.parametrize(
    "content", ["", "who?", "0", "9" * 30, f"{os.getpid()} 1\n"], ids=["empty", "word", "zero", "huge", "reused"]
)
def test_holder_rejects_invalid_and_reused_process_ids(tmp_path: Path, content: str) -> None:
    """In the last case, the process id has been reused by another process."""
    (tmp_path / "lock").write_text(content)
    assert holder(tmp_path / "lock") is None
    Lock(tmp_path / "lock").release()
