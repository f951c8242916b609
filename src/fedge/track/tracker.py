"""The run's side of a tracker: starts the process, notifies it of each round, and waits only at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from fedge.core.progress import Progress
from fedge.core.schema import tag
from fedge.core.track_options import Tracking
from fedge.track.following import END, NEWS, Job


@contextmanager
def tracking(options: Tracking | None, path: Path, progress: Progress) -> Iterator[Progress]:
    """Yield a listener for the run at a path that forwards to `progress` and notifies the tracking tool."""
    if options is None:
        yield progress
        return
    tracked = TrackedProgress(options, path, progress)
    try:
        yield tracked
    finally:
        tracked.close()


class TrackedProgress:
    """A listener of one run. The first failure of its tracker is a notice, and ends tracking."""

    def __init__(self, options: Tracking, path: Path, progress: Progress) -> None:
        self._options, self._path, self._progress = options, path, progress
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False

    def begin(self, title: str, first_round: int, num_rounds: int) -> None:
        self._progress.begin(title, first_round, num_rounds)
        job = Job(str(self._path.resolve()), first_round, os.getpid(), self._options)
        command = [sys.executable, "-m", "fedge.track", msgspec.json.encode(job).decode()]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if os.environ.get("FEDGE_DEBUG") == "1" else subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C goes to the run, which ends its tracker
            )
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            os.set_blocking(self._process.stdin.fileno(), False)
            os.set_blocking(self._process.stdout.fileno(), False)
        except (OSError, ValueError) as error:
            self._give_up(str(error))

    def round(self, record: Mapping[str, Any]) -> None:
        self._progress.round(record)
        self._write(NEWS)
        if self._process is not None and self._process.poll() is not None:
            self._give_up(self._reason())

    def notice(self, text: str) -> None:
        self._progress.notice(text)

    def end(self, summary: Mapping[str, Any]) -> None:
        self._ended = True
        self._progress.end(summary)

    def close(self) -> None:
        """Wait up to `wait_s` for the tracker to finish, then end it."""
        if self._process is None:
            return
        if self._ended:
            self._write(END)
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            failed = self._process.wait(self._options.wait_s) != 0
        except subprocess.TimeoutExpired:
            self._give_up(f"did not finish within track.wait_s = {self._options.wait_s:g} s after the run")
        else:
            if failed:
                self._give_up(self._reason())
        finally:
            self._stop()

    def _write(self, message: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # full: it already has messages to read; broken: it has ended
                os.write(self._process.stdin.fileno(), message)

    def _reason(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        said = b""
        with suppress(OSError):
            said = os.read(self._process.stdout.fileno(), 4096)
        return said.decode(errors="replace").strip() or f"ended with code {self._process.returncode}"

    def _give_up(self, reason: str) -> None:
        self._stop()
        self._progress.notice(f"track: {tag(type(self._options))}: {reason}; the run continues without it")

    def _stop(self) -> None:
        """Kill the process and everything that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
