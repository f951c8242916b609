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


def test_two_processes(held: tuple[Path, subprocess.Popen[str], int]) -> None:
    path, process, worker = held
    assert holder(path) == process.pid
    with pytest.raises(RunError, match=rf"{path.parent} is in use by process {process.pid}; wait"):
        Lock(path)
    assert holder(path) == process.pid  # trying has changed nothing

    process.kill()
    process.wait()
    os.kill(worker, 0)  # still there, and does not keep the lock
    assert holder(path) is None
    lock = Lock(path)
    assert holder(path) == os.getpid()
    lock.release()


def test_dead_but_not_yet_buried(held: tuple[Path, subprocess.Popen[str], int]) -> None:
    path, process, _ = held
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert holder(path) is None


def test_released_lock_names_nobody(tmp_path: Path) -> None:
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
def test_holder_must_be_the_process_named(tmp_path: Path, content: str) -> None:
    """The last one: a process id that has been given to another process since."""
    (tmp_path / "lock").write_text(content)
    assert holder(tmp_path / "lock") is None
    Lock(tmp_path / "lock").release()
