"""Progress of all runs of a sweep."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from fedge.core.fields import NO_OWN_FIELDS, OwnFields, describe, measured_on

Status = Literal["waiting", "running", "complete", "failed"]


@dataclass
class Line:
    """The progress of one run."""

    name: str
    num_rounds: int
    round: int = 0
    status: Status = "waiting"
    value: float | None = None  # the last measured value of the metric
    resumed_at: int = 0  # rounds that were complete before it was started here


class Listener(Protocol):
    """Receives the progress of a sweep."""

    def notice(self, text: str) -> None:
        """Receive a message for the user, one line."""

    def ended(self, line: Line, board: Board) -> None:
        """Called when a run is complete or has failed."""

    def show(self, board: Board) -> None:
        """Called regularly, to refresh the display."""


class Unwatched:
    """A listener that ignores everything."""

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
        self.later_rounds = 0  # rounds of later rungs, whose runs are not chosen yet
        self._lines: dict[str, Line] = {}
        self._clock = clock
        self._started_s = clock()

    def lines(self, *statuses: Status) -> list[Line]:
        """Return the runs with one of these statuses."""
        return [line for line in self._lines.values() if line.status in statuses]

    @property
    def num_runs(self) -> int:
        return len(self._lines)

    @property
    def share(self) -> float:
        """The share of all rounds that is done."""
        lines = self._lines.values()
        ahead = sum(line.num_rounds for line in lines if line.status != "failed") + self.later_rounds
        return sum(line.round for line in lines if line.status != "failed") / ahead if ahead else 1.0

    @property
    def ranks(self) -> bool:
        """Whether runs are ranked: by the validation split, never by the test set."""
        return measured_on(self.metric) == "validation split"

    @property
    def best(self) -> Line | None:
        """The run with the best value so far; None if runs are not ranked."""
        if not self.ranks:
            return None
        measured = [line for line in self.lines("running", "complete") if line.value is not None]
        return min(measured, key=lambda line: self.rank(line.value), default=None)

    @property
    def left_s(self) -> float | None:
        """Estimated seconds to the end, from the mean duration of rounds so far; None before the first round."""
        here = sum(line.round - line.resumed_at for line in self.lines("running", "complete"))
        if here <= 0:
            return None
        ahead = sum(line.num_rounds - line.round for line in self.lines("waiting", "running")) + self.later_rounds
        return (self._clock() - self._started_s) / here * ahead

    def rank(self, value: float | None) -> float:
        """Return a number that is smaller for better values."""
        return float("inf") if value is None else self.declared.rank(value)

    def place(self, names: Iterable[str], num_rounds: int) -> None:
        """Add runs, or put them back to waiting, until they have this many rounds in total."""
        for name in names:
            line = self._lines.setdefault(name, Line(name, num_rounds))
            line.num_rounds, line.status = num_rounds, "waiting"

    def hear(self, name: str, round: int, metrics: Mapping[str, float], begins: bool = False) -> None:
        """Record that a run finished this round, or with `begins`, that it starts after it."""
        line = self._lines[name]
        line.status, line.round = "running", round
        if begins:
            line.resumed_at = round
        line.value = metrics.get(self.metric, line.value)

    def wait(self, name: str) -> None:
        """Record that a run will be retried."""
        self._lines[name].status = "waiting"

    def end(self, name: str, failed: bool = False) -> Line:
        """Record that a run is complete, after any number of rounds, or has failed."""
        line = self._lines[name]
        line.status = "failed" if failed else "complete"
        if not failed:
            line.num_rounds = line.round
        return line

    def complete(self, name: str, round: int, value: float | None) -> None:
        """Record that a run was complete before the sweep started."""
        line = self._lines[name]
        line.round = line.num_rounds = line.resumed_at = round
        line.status, line.value = "complete", value
