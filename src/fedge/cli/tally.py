"""What a run has come to so far, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedge.report.quantities import COSTS, fitting

_MEASURED = {"accuracy": "accuracy {:.1%}", "user_accuracy": "user {:.1%}", "train_loss": "train loss {:.3g}"}
_PAID = {"bytes_up": "{:.4g} {} up", "sim_seconds": "{:.4g} {} edge"}


class Tally:
    """Adds up the records of a run. Metrics are the last ones measured, costs are totals."""

    def __init__(self, num_rounds: int, started_s: float) -> None:
        self.round = 0
        self.num_rounds = num_rounds
        self._started_s = started_s
        self._num_timed = 0
        self._last: dict[str, float] = {}
        self._total: dict[str, float] = {}

    def add(self, record: Mapping[str, Any], timed: bool = True) -> None:
        """Take a round into account; one from before this process started says nothing about its speed."""
        self.round = record["round"]
        self._num_timed += timed
        for name in _MEASURED:
            if record.get(name) is not None:
                self._last[name] = record[name]
        for name in _PAID:
            if record.get(name) is not None:
                self._total[name] = self._total.get(name, 0.0) + record[name]

    def line(self) -> str:
        """`accuracy 93.1%, 12.5 MB up`"""
        said = [form.format(self._last[name]) for name, form in _MEASURED.items() if name in self._last]
        for name, form in _PAID.items():
            if name in self._total:
                unit = fitting(COSTS[name].units, self._total[name])
                said.append(form.format(self._total[name] / unit.size, unit.name))
        return ", ".join(said)

    def left(self, now_s: float) -> str:
        """`1:23 left`, if the rounds to come take as long as those so far."""
        each_s = (now_s - self._started_s) / self._num_timed
        return f"{duration(each_s * (self.num_rounds - self.round))} left"

    def took(self, now_s: float) -> str:
        """`done in 1:23`"""
        return f"done in {duration(now_s - self._started_s)}"


def duration(seconds: float) -> str:
    """`1:23`, or `2:01:23` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
