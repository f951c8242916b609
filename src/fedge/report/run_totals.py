"""The metrics and total costs of a run so far, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedge.core.fields import describe

_SHOWN = {
    "accuracy": "accuracy {}",
    "user_accuracy": "user {}",
    "train_loss": "train loss {}",
    "bytes_up": "{} up",
    "sim_seconds": "{} edge",
    "void": "{} void rounds",
}
"""The fields of the line, with names so short that all of them fit 80 columns."""


class RunTotals:
    """Adds up the records of a run: the last value of each metric, the total of each cost."""

    def __init__(self, num_rounds: int, started_s: float) -> None:
        self.round = 0
        self.num_rounds = num_rounds
        self._started_s = started_s
        self._num_timed = 0
        self._values: dict[str, float] = {}

    def add(self, record: Mapping[str, Any], timed: bool = True) -> None:
        """Add a round; a round from before this process started (`timed` is False) is not part of the speed."""
        self.round = record["round"]
        self._num_timed += timed
        for name in _SHOWN:
            if (value := record.get(name)) is not None:
                before = self._values.get(name, 0.0) if describe(name).total == "sum" else 0.0
                self._values[name] = before + value

    def line(self) -> str:
        """Return `accuracy 93.12%, 12.5 MB up`."""
        known = [(name, form) for name, form in _SHOWN.items() if name in self._values]
        return ", ".join(form.format(describe(name).write(self._values[name])) for name, form in known)

    def left(self, now_s: float) -> str:
        """Return `1:23 left`, assuming that the remaining rounds take as long as those so far."""
        each_s = (now_s - self._started_s) / self._num_timed
        return f"{duration(each_s * (self.num_rounds - self.round))} left"

    def took(self, now_s: float) -> str:
        """Return `done in 1:23`."""
        return f"done in {duration(now_s - self._started_s)}"


def duration(seconds: float) -> str:
    """Return `1:23`, or `2:01:23` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
