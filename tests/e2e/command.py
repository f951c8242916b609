"""Start, stop and wait for `fedge` processes."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Self

PATIENCE_S = 120.0  # a generous deadline, even on a busy machine
_UNSET = ("FEDGE_DATA", "FEDGE_DEBUG", "FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS")


class Ended(NamedTuple):
    """A process that has ended."""

    code: int  # negative: the signal that ended it
    out: str
    err: str
    peak_kb: int


class Fedge:
    """Starts `fedge` processes by forking from the nursery (see nursery.py)."""

    def __init__(self, folder: Path) -> None:
        """Write the output of processes to files in `folder`."""
        self._folder = folder
        self._numbers = count()
        self._nursery = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("nursery.py")],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._answer() == "ready"

    def __call__(self, *args: object, **options: Any) -> Ended:
        """Run the command to its end; options are those of `start`."""
        with self.start(*args, **options) as process:
            return process.wait()

    def start(
        self,
        *args: object,
        folder: Path | None = None,
        environment: dict[str, str] | None = None,
        file_bytes: int | None = None,
        powerless: bool = False,
        hooks: Sequence[tuple[str, str, dict[str, Any]]] = (),
    ) -> Process:
        """Start the command in a new process.

        `file_bytes` limits the size of each file it writes; `powerless` removes root's power over permissions.
        `hooks` are functions that the process calls first: module, name and arguments of each.
        """
        output = self._folder / str(next(self._numbers))
        wanted = {
            "args": [str(arg) for arg in args],
            "folder": str(folder or self._folder),
            "environment": environment or {},
            "output": str(output),
            "file_bytes": file_bytes,
            "powerless": powerless,
            "hooks": list(hooks),
        }
        for file in _outputs(output):
            file.touch()  # the process may be killed before it does this
        return Process(self, self._ask({"start": wanted}), output)

    def reap(self, pid: int) -> tuple[int, int] | None:
        """Return the exit code and peak memory of a process that ends in time; None if it had to be killed."""
        self._send({"wait": pid})
        ended, _, _ = select.select([self._nursery.stdout], [], [], PATIENCE_S)
        if not ended:
            os.kill(pid, signal.SIGKILL)
        code, peak_kb = self._answer()
        return (code, peak_kb) if ended else None

    def _ask(self, request: dict[str, Any]) -> Any:
        self._send(request)
        return self._answer()

    def _send(self, request: dict[str, Any]) -> None:
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(json.dumps(request).encode() + b"\n")

    def _answer(self) -> Any:
        assert self._nursery.stdout is not None
        line = self._nursery.stdout.readline()
        assert line, f"the nursery ended with {self._nursery.wait()}"
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._nursery.communicate()


class Process:
    """A started command. As a context manager, it kills the process at the end."""

    def __init__(self, fedge: Fedge, pid: int, output: Path) -> None:
        self.pid = pid
        self._fedge, self._output = fedge, output
        self._over = False

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    @property
    def ended(self) -> bool:
        """Whether it has ended or was killed; Linux only."""
        return self._over or Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    @property
    def out(self) -> str:
        """Its standard output so far."""
        return _outputs(self._output)[0].read_text()

    @property
    def err(self) -> str:
        """Its standard error so far."""
        return _outputs(self._output)[1].read_text()

    def wait(self) -> Ended:
        self._over, ended = True, self._fedge.reap(self.pid)
        out, err = (file.read_text() for file in _outputs(self._output))
        assert ended is not None, f"fedge did not end within {PATIENCE_S:g} s; its messages: {err}"
        return Ended(ended[0], out, err, ended[1])

    def kill(self) -> Ended:
        self.send(signal.SIGKILL)
        return self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._over:
            self.kill()


def start_cold(*args: object, folder: Path) -> subprocess.Popen[str]:
    """Start the command in a fresh interpreter, as a shell does."""
    # Python ignores Ctrl-C if its parent did, such as a script that runs the tests in the background.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from fedge.cli import main; main()"
    command = [sys.executable, "-c", code, *map(str, args)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment(), stdout=pipe, stderr=pipe, text=True)


def environment() -> dict[str, str]:
    """Return the environment without variables that change messages or data paths."""
    kept = {name: value for name, value in os.environ.items() if name not in _UNSET}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "NO_COLOR": "1"}


def wait_until(happened: Callable[[], bool], pause_s: float = 0.002) -> None:
    """Poll a condition until it holds or the deadline passes."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, "the condition did not hold in time"
        time.sleep(pause_s)


def _outputs(stem: Path) -> tuple[Path, Path]:
    return stem.with_suffix(".out"), stem.with_suffix(".err")
