"""Concurrent runs in processes, within limits on processors and memory.

Every run has its own process, forked from this one, which has already imported everything. That takes milliseconds,
and all memory is returned at the end of a run. The first run is alone until it has finished a round: its memory then
determines how many may run concurrently.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from signal import Signals
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from fedge.core.lock import holder
from fedge.core.machine import leaving_garbage
from fedge.runs.files import LOCK
from fedge.sweeps.board import Board, Listener
from fedge.sweeps.plan import PlannedRun
from fedge.sweeps.worker import Ended, NoticeMessage, ProgressMessage, work

_TICK_S = 0.5
_LONGEST_PAUSE_S = 60.0
_TAIL_BYTES = 2000
_FORK = get_context("fork")


class PoolLimits(NamedTuple):
    """The resources that a sweep may use."""

    workers: int
    memory_mb: float
    retries: int = 3
    pause_s: float = 1.0  # before the first retry; doubled before each further one


@dataclass
class _Waiting:
    run: PlannedRun
    failures: int = 0
    not_before_s: float = 0.0


@dataclass
class _Running:
    turn: _Waiting
    process: BaseProcess
    output: IO[bytes]
    ended: Ended | None = None
    closed: bool = False


class RunPool:
    """Executes the runs of a sweep."""

    def __init__(self, limits: PoolLimits, board: Board, listener: Listener) -> None:
        self._limits, self._board, self._listener = limits, board, listener
        self._most = limits.workers  # lowered when memory runs out, raised by every run that succeeds
        self._peak_mb: float | None = None
        self._waiting: deque[_Waiting] = deque()
        self._running: dict[Connection, _Running] = {}

    def run(self, runs: Sequence[PlannedRun]) -> dict[str, Ended]:
        """Execute all runs and return those that failed, by name."""
        self._waiting.extend(map(_Waiting, runs))
        failed: dict[str, Ended] = {}
        try:
            while self._waiting or self._running:
                failed |= self._start_some()
                self._listen()
                failed |= self._settle()
                self._listener.show(self._board)
        finally:
            self._stop()
        return failed

    @property
    def num_allowed(self) -> int:
        """The number of runs allowed at this moment."""
        if self._peak_mb is None:
            return 1
        return max(1, min(self._most, int(self._limits.memory_mb // self._peak_mb)))

    def _start_some(self) -> dict[str, Ended]:
        failed: dict[str, Ended] = {}
        now = time.monotonic()
        for turn in [turn for turn in self._waiting if turn.not_before_s <= now]:
            if len(self._running) >= self.num_allowed:
                break
            self._waiting.remove(turn)
            user = holder(turn.run.path / LOCK)
            if user is None:
                self._start(turn)
            else:
                failed |= self._try_again(
                    turn, Ended(f"{turn.run.path} is in use by process {user}; end that process", 6)
                )
        return failed

    def _start(self, turn: _Waiting) -> None:
        ours, theirs = _FORK.Pipe(duplex=False)
        output = TemporaryFile()  # noqa: SIM115 - closed when the process ends
        told = (turn.run, theirs, output.fileno(), os.getpid(), self._limits.workers)
        process = _FORK.Process(target=work, args=told)
        with leaving_garbage():
            process.start()
        theirs.close()  # so that the pipe closes when the process ends
        self._running[ours] = _Running(turn, process, output)
        self._board.hear(turn.run.name, 0, {}, begins=True)

    def _listen(self) -> None:
        """Process messages of the runs, waiting briefly if there are none."""
        if not self._running:
            time.sleep(min(_TICK_S, self._limits.pause_s))
        for connection in wait(list(self._running), _TICK_S):
            assert isinstance(connection, Connection)
            self._take_in(connection)

    def _take_in(self, connection: Connection) -> None:
        running = self._running[connection]
        try:
            while connection.poll():
                self._receive(running, connection.recv())
        except (EOFError, OSError):  # the process has ended; ignore an incomplete message
            running.closed = True

    def _receive(self, running: _Running, message: ProgressMessage | NoticeMessage | Ended) -> None:
        name = running.turn.run.name
        if isinstance(message, ProgressMessage):
            self._board.hear(name, message.round, message.metrics, message.begins)
            if not message.begins:
                self._peak_mb = max(self._peak_mb or 0.0, message.peak_mb)
        elif isinstance(message, NoticeMessage):
            self._listener.notice(f"{name}: {message.text}")
        else:
            running.ended = message

    def _settle(self) -> dict[str, Ended]:
        """Handle every process that has ended; return the runs that failed."""
        failed: dict[str, Ended] = {}
        for connection, running in list(self._running.items()):
            if not running.closed and running.process.is_alive():
                continue
            running.process.join()
            self._take_in(connection)  # its last messages
            del self._running[connection]
            connection.close()
            ended = running.ended or _death(running)
            running.output.close()
            name = running.turn.run.name
            if ended.out_of_memory:
                self._most = max(1, len(self._running))
                failed |= self._try_again(running.turn, ended)
            elif ended.reason is not None:
                failed |= self._fail(name, ended)
            else:
                self._most = min(self._limits.workers, self._most + 1)
                self._listener.ended(self._board.end(name), self._board)
        return failed

    def _try_again(self, turn: _Waiting, ended: Ended) -> dict[str, Ended]:
        turn.failures += 1
        name = turn.run.name
        if turn.failures > self._limits.retries:
            tries = f" ({turn.failures} tries)" if turn.failures > 1 else ""
            return self._fail(name, ended._replace(reason=f"{ended.reason}{tries}"))
        pause_s = min(_LONGEST_PAUSE_S, self._limits.pause_s * 2 ** (turn.failures - 1))
        turn.not_before_s = time.monotonic() + pause_s
        self._waiting.appendleft(turn)
        self._board.wait(name)
        self._listener.notice(f"{name}: {ended.reason}; retrying in {pause_s:g} s")
        return {}

    def _fail(self, name: str, ended: Ended) -> dict[str, Ended]:
        self._listener.ended(self._board.end(name, failed=True), self._board)
        return {name: ended}

    def _stop(self) -> None:
        """Kill all processes. Their runs lose only the rounds after their last checkpoint."""
        for running in self._running.values():
            running.process.kill()
        for connection, running in self._running.items():
            running.process.join()
            connection.close()
            running.output.close()
        self._running.clear()
        self._waiting.clear()


def _death(running: _Running) -> Ended:
    """Return why a process ended without a message. A killed process most likely ran out of memory."""
    code = running.process.exitcode or 0
    if code < 0:
        return Ended(f"was killed by {Signals(-code).name}", 1, out_of_memory=True)
    running.output.seek(max(0, running.output.seek(0, os.SEEK_END) - _TAIL_BYTES))
    last = running.output.read().decode(errors="replace").strip().rpartition("\n")[2]
    return Ended(f"ended with code {code}" + (f": {last}" if last else ""), 1)
