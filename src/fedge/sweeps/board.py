"""How far the runs of a sweep are, all together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from fedge.core.fields import NO_OWN_FIELDS, OwnFields, describe, measured_on

Status = Literal["waiting", "running", "complete", "failed"]


@dataclass
class Line:
    """One run."""

    name: str
    num_rounds: int
    round: int = 0
    status: Status = "waiting"
    value: float | None = None  # the last of the metric that was measured
    resumed_at: int = 0  # rounds that were there before it was started here


class Listener(Protocol):
    """Whoever watches a sweep."""

    def notice(self, text: str) -> None:
        """Something a person should know, in one line."""

    def ended(self, line: Line, board: Board) -> None:
        """A run is complete, or has failed."""

    def show(self, board: Board) -> None:
        """A moment has passed."""


class Unwatched:
    """Listens to nothing."""

    def notice(self, text: str) -> None:
        pass

    def ended(self, line: Line, board: Board) -> None:
        pass

    def show(self, board: Board) -> None:
        pass


class Board:
    """All runs of a sweep, in order."""

    def __init__(
        self, metric: str, clock: Callable[[], float] = time.monotonic, own: OwnFields = NO_OWN_FIELDS
    ) -> None:
        """`own` are the fields of the runs' own metrics."""
        self.metric, self.declared = metric, describe(metric, own)
        self.later_rounds = 0  # of runs that are not chosen yet
        self._lines: dict[str, Line] = {}
        self._clock = clock
        self._started_s = clock()

    def lines(self, *statuses: Status) -> list[Line]:
        """The runs that are in one of these states."""
        return [line for line in self._lines.values() if line.status in statuses]

    @property
    def num_runs(self) -> int:
        return len(self._lines)

    @property
    def share(self) -> float:
        """How much of all rounds is done."""
        lines = self._lines.values()
        ahead = sum(line.num_rounds for line in lines if line.status != "failed") + self.later_rounds
        return sum(line.round for line in lines if line.status != "failed") / ahead if ahead else 1.0

    @property
    def ranks(self) -> bool:
        """Whether runs are ranked: by the validation split, never by the test set."""
        return measured_on(self.metric) == "validation split"

    @property
    def best(self) -> Line | None:
        """The run with the best value so far; None where runs are not ranked."""
        if not self.ranks:
            return None
        measured = [line for line in self.lines("running", "complete") if line.value is not None]
        return min(measured, key=lambda line: self.rank(line.value), default=None)

    @property
    def left_s(self) -> float | None:
        """Seconds to the end, if the rounds to come take as long as those so far; None if there were none."""
        here = sum(line.round - line.resumed_at for line in self.lines("running", "complete"))
        if here <= 0:
            return None
        ahead = sum(line.num_rounds - line.round for line in self.lines("waiting", "running")) + self.later_rounds
        return (self._clock() - self._started_s) / here * ahead

    def rank(self, value: float | None) -> float:
        """A number that is the smaller the better the value."""
        return float("inf") if value is None else self.declared.rank(value)

    def place(self, names: Iterable[str], num_rounds: int) -> None:
        """These runs are to come, or to go on, for so many rounds in all."""
        for name in names:
            line = self._lines.setdefault(name, Line(name, num_rounds))
            line.num_rounds, line.status = num_rounds, "waiting"

    def hear(self, name: str, round: int, metrics: Mapping[str, float], begins: bool = False) -> None:
        """A run has come to the end of a round, or begins after it."""
        line = self._lines[name]
        line.status, line.round = "running", round
        if begins:
            line.resumed_at = round
        line.value = metrics.get(self.metric, line.value)

    def wait(self, name: str) -> None:
        """A run is to be tried again."""
        self._lines[name].status = "waiting"

    def end(self, name: str, failed: bool = False) -> Line:
        """A run is complete, however many rounds that took, or has failed."""
        line = self._lines[name]
        line.status = "failed" if failed else "complete"
        if not failed:
            line.num_rounds = line.round
        return line

    def complete(self, name: str, round: int, value: float | None) -> None:
        """A run was complete before."""
        line = self._lines[name]
        line.round = line.num_rounds = line.resumed_at = round
        line.status, line.value = "complete", value
