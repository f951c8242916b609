"""Protocol to measure programs from outside: a candidate trains rounds on request and reports the time.

A candidate is a process. After its first round it prints `{"ready": true, "versions": {...}}`, or
`{"unavailable": "why"}`. For every line `go N` it trains N rounds and prints `{"seconds": ...}`; it exits at the end of
its input. Candidates run at the same time and take turns, so that noise affects all equally; a candidate sleeps while
it waits for its turn. Its memory, including child processes, is sampled a few times per second.

Requires only the standard library, because peers import it in their own environments.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
Rounds = Callable[[int], object]
"""Trains the given number of rounds."""
_TURN_S = 1.5  # long enough to average out timer resolution and noise
_READY_S, _ANSWER_S = 600.0, 180.0
_FEWEST_TURNS = 3
_SAMPLE_S = 0.25  # between two samples of memory, each of which takes some milliseconds


class UnavailableError(Exception):
    """Raised with the reason why a candidate cannot run this workload here."""


def serve(prepare: Callable[[], Rounds], packages: Sequence[str]) -> None:
    """Run the candidate's side of the protocol. All other output of the program goes to standard error."""
    say = _claim_output()
    try:
        rounds = prepare()
        rounds(1)
    except UnavailableError as reason:
        say({"unavailable": str(reason)})
        return
    say({"ready": True, "versions": {name: version(name) for name in packages}})
    for line in sys.stdin:
        number = int(line.removeprefix("go "))
        began = time.perf_counter()
        rounds(number)
        say({"seconds": time.perf_counter() - began})


def memory_mb(process: int) -> float:
    """Return the memory in MB of a process and its descendants (PSS): shared pages count once."""
    return sum(_pss_kb(one) for one in _family(process)) / 1024


class Candidate:
    """The measuring side of the protocol: a started process."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - read when the process has ended
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            start_new_session=True,  # so that it can be killed with its descendants
        )
        self._peak_mb = 0.0

    def ready(self, timeout_s: float) -> dict[str, str]:
        """Wait until it is ready, and return the versions that it reports."""
        versions: dict[str, str] = self._answer(timeout_s)["versions"]
        return versions

    def go(self, rounds: int, timeout_s: float) -> float:
        """Return the seconds that `rounds` rounds took."""
        self._tell(f"go {rounds}\n")
        return float(self._answer(timeout_s)["seconds"])

    def finish(self, timeout_s: float) -> float:
        """End it, and return its peak memory in MB."""
        assert self._process.stdin
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        self.kill()
        return self._peak_mb

    def kill(self) -> None:
        """Kill it and the processes that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise UnavailableError(self._last_words()) from None

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdout
        late, answered = threading.Event(), threading.Event()

        def watch() -> None:
            deadline = time.monotonic() + timeout_s
            while not answered.wait(min(_SAMPLE_S, timeout_s)):
                self._look()
                if time.monotonic() >= deadline:
                    late.set()
                    self.kill()
                    return

        watcher = threading.Thread(target=watch)
        watcher.start()
        line = self._process.stdout.readline()
        answered.set()
        watcher.join()
        self._look()
        if not line:
            self._process.wait()
            raise UnavailableError(f"no answer within {timeout_s:g} s" if late.is_set() else self._last_words())
        try:
            answer: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError:
            raise UnavailableError(f"expected an answer in JSON, got {line.strip()!r}") from None
        if "unavailable" in answer:
            raise UnavailableError(answer["unavailable"])
        return answer

    def _look(self) -> None:
        self._peak_mb = max(self._peak_mb, memory_mb(self._process.pid))

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        return f"ended with status {self._process.wait()}: {lines[-1] if lines else 'no message'}"


class Outcome(NamedTuple):
    """The measurements of a candidate."""

    seconds: list[float]  # per round, in each turn
    peak_mb: float
    versions: dict[str, str]


def take_turns(
    commands: Mapping[str, Sequence[str]], turns: int, patience_s: float
) -> tuple[dict[str, Outcome], dict[str, str]]:
    """Return the measurements, and the reasons why other candidates are unavailable.

    Every candidate runs once per turn; a fast candidate trains several rounds. After `patience_s` seconds only the
    turns that a median needs are taken.
    """
    contest = _Contest(commands)
    try:
        versions = contest.each(lambda _, candidate: candidate.ready(_READY_S))
        first = contest.each(lambda _, candidate: candidate.go(1, _ANSWER_S))
        rounds = {name: max(1, round(_TURN_S / seconds)) for name, seconds in first.items()}
        taken: list[dict[str, float]] = []
        began = time.perf_counter()
        while len(taken) < turns and (len(taken) < _FEWEST_TURNS or time.perf_counter() - began < patience_s):
            taken.append(contest.each(lambda name, it: it.go(rounds[name], _ANSWER_S) / rounds[name]))
        peaks = contest.each(lambda _, candidate: candidate.finish(_ANSWER_S))
    finally:
        contest.end()
    measured = {name: Outcome([turn[name] for turn in taken], peak, versions[name]) for name, peak in peaks.items()}
    return measured, contest.unavailable


class _Contest:
    """Started candidates; those that fail are removed with their reason."""

    def __init__(self, commands: Mapping[str, Sequence[str]]) -> None:
        self.unavailable: dict[str, str] = {}
        self._running = {name: Candidate(command) for name, command in commands.items()}

    def each(self, act: Callable[[str, Candidate], Any]) -> dict[str, Any]:
        """Return the result of `act` for each candidate, one after another."""
        said = {}
        for name, candidate in list(self._running.items()):
            try:
                said[name] = act(name, candidate)
            except UnavailableError as reason:
                self.unavailable[name] = str(reason)
                self._running.pop(name).kill()
        return said

    def end(self) -> None:
        for candidate in self._running.values():
            candidate.kill()


def _claim_output() -> Callable[[dict[str, object]], None]:
    """Reserve standard output for the protocol, and redirect all other output to standard error."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(message: dict[str, object]) -> None:
        print(json.dumps(message), file=output, flush=True)

    return say


def _family(process: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it may have ended
            parent = path.read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(path.parent.name))
    waiting = [process]
    while waiting:
        yield (one := waiting.pop())
        waiting += children.get(one, [])


def _pss_kb(process: int) -> int:
    with contextlib.suppress(OSError):  # it may have ended, or this system has no such file
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0
