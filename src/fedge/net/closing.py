"""The rules for closing an exchange."""

from __future__ import annotations

import math
from typing import NamedTuple

from fedge.net.task import ENDS, TaskState


class Rules(NamedTuple):
    """When an exchange closes and a client is dropped: the settings of the same names in `[net]`."""

    fraction: float
    grace_s: float
    deadline_s: float
    lease_s: float


class ClosingTime:
    """Counts tasks and decides when the exchange closes, at the earliest of:

    - all tasks have ended;
    - the planned number of answers has arrived, which is below the number of clients with over-selection;
    - the required fraction of accepted tasks has been answered, and the grace period has passed since;
    - the deadline.
    """

    def __init__(self, rules: Rules, asked: int, planned: int, now: float) -> None:
        self._rules, self._planned = rules, planned
        self._deadline = now + rules.deadline_s
        self._num_active, self._num_accepted, self._num_received = asked, 0, 0
        self._grace_end = math.inf

    def count(self, state: TaskState, now: float) -> None:
        """Count a task that entered a state."""
        self._num_active -= state in ENDS
        self._num_accepted += state == TaskState.ACCEPTED
        self._num_received += state == TaskState.SETTLED
        # Rounded, since 0.55 * 100 is slightly more than 55
        needed = math.ceil(round(self._rules.fraction * self._num_accepted, 9))
        if not 0 < needed <= self._num_received:
            self._grace_end = math.inf  # more clients have accepted
        elif self._grace_end == math.inf:
            self._grace_end = now + self._rules.grace_s

    def next_wake(self) -> float:
        """Return when the exchange closes if no event comes first."""
        return min(self._grace_end, self._deadline)

    def reason(self, now: float) -> str | None:
        """Return why the exchange closes; None as long as it stays open."""
        if self._num_active == 0:
            return "all tasks have ended"
        if self._num_received >= self._planned:
            return f"all {self._planned} planned answers received"
        if now < self.next_wake():
            return None
        if self._grace_end > self._deadline:
            return f"the deadline of {self._rules.deadline_s:g} s has passed"
        return f"{self._num_received} of {self._num_accepted} answers received, and {self._rules.grace_s:g} s passed"
