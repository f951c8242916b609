"""How the speed of a program is measured from outside: it does rounds when told to, and says how long they took.

A candidate is a process. Once it has trained a round it prints `{"ready": true, "versions": {...}}`, or
`{"unavailable": "why"}`. For every line `go N` it trains N rounds and prints `{"seconds": ...}`; at the end of its
input it ends. Candidates live side by side and take turns, so that the machine's moods fall on all alike; one that
waits for its turn sleeps. Meanwhile its memory, and that of its processes, is looked at a few times a second.

Needs the standard library alone: peers read it in environments of their own.
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
"""Trains so many rounds."""
_TURN_S = 1.5  # long enough for the clock and for the machine's moods to even out
_READY_S, _ANSWER_S = 600.0, 180.0
_FEWEST_TURNS = 3
_SAMPLE_S = 0.25  # between two looks at memory: a look takes some milliseconds


class UnavailableError(Exception):
    """A candidate that cannot run this workload here, and why."""


def serve(prepare: Callable[[], Rounds], packages: Sequence[str]) -> None:
    """The candidate's side of the protocol. What the program prints otherwise goes to standard error."""
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
    """Return the memory of a process and all that descend from it (PSS): pages that several share count once."""
    return sum(_pss_kb(one) for one in _family(process)) / 1024


class Candidate:
    """The measuring side: a process that was started."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - read when the process has ended
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            start_new_session=True,  # so that it can be ended with all that it started
        )
        self._peak_mb = 0.0

    def ready(self, timeout_s: float) -> dict[str, str]:
        """The versions that it says it runs, once it is ready."""
        versions: dict[str, str] = self._answer(timeout_s)["versions"]
        return versions

    def go(self, rounds: int, timeout_s: float) -> float:
        """Seconds that so many rounds took."""
        self._tell(f"go {rounds}\n")
        return float(self._answer(timeout_s)["seconds"])

    def finish(self, timeout_s: float) -> float:
        """End it; the most memory in MB that it was seen with."""
        assert self._process.stdin
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        self.kill()
        return self._peak_mb

    def kill(self) -> None:
        """End it at once, with the processes that it started."""
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
    """What was measured of a candidate."""

    seconds: list[float]  # a round took, in each turn
    peak_mb: float
    versions: dict[str, str]


def take_turns(
    commands: Mapping[str, Sequence[str]], turns: int, patience_s: float
) -> tuple[dict[str, Outcome], dict[str, str]]:
    """(what was measured, why the others are unavailable): in each turn every candidate runs once.

    A turn of a fast candidate is several rounds. Once patience is over no more turns are taken than a median needs.
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
    """Candidates that were started; those that fail are out, with the reason."""

    def __init__(self, commands: Mapping[str, Sequence[str]]) -> None:
        self.unavailable: dict[str, str] = {}
        self._running = {name: Candidate(command) for name, command in commands.items()}

    def each(self, act: Callable[[str, Candidate], Any]) -> dict[str, Any]:
        """What each of them says, one after another."""
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
    """Keep standard output for the protocol, and let everything else that is printed go to standard error."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(message: dict[str, object]) -> None:
        print(json.dumps(message), file=output, flush=True)

    return say


def _family(process: int) -> Iterator[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            parent = path.read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(path.parent.name))
    waiting = [process]
    while waiting:
        yield (one := waiting.pop())
        waiting += children.get(one, [])


def _pss_kb(process: int) -> int:
    with contextlib.suppress(OSError):  # it may have ended meanwhile, or this system has no such file
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0
