"""One client's task in an exchange, as a state machine without sockets or clock.

Every method that changes the state takes `now`, in seconds of a monotonic clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Literal, NamedTuple


class TaskState(StrEnum):
    """The states of a task; those in `ENDS` are final."""

    OFFERED = "offered"
    ACCEPTED = "accepted"
    FETCHING = "fetching"
    WORKING = "working"
    WAITING = "waiting"  # the answer is ready; the client needs a grant to upload it
    UPLOADING = "uploading"
    SETTLED = "settled"  # the answer arrived and passed the gate
    DECLINED = "declined"  # by the client's policy
    WITHDRAWN = "withdrawn"  # by the server: before the client accepted, or because it must not take part
    LOST = "lost"  # the lease expired, or the client left
    LATE = "late"  # accepted, but not settled when the exchange closed
    REJECTED = "rejected"  # by the gate
    FAILED = "failed"  # the client cannot do it


ENDS = frozenset(
    {
        TaskState.SETTLED,
        TaskState.DECLINED,
        TaskState.WITHDRAWN,
        TaskState.LOST,
        TaskState.LATE,
        TaskState.REJECTED,
        TaskState.FAILED,
    }
)
_FROM_ANYWHERE = ENDS - {TaskState.SETTLED, TaskState.LATE}

TASK_TRANSITIONS: Mapping[TaskState, frozenset[TaskState]] = {
    TaskState.OFFERED: frozenset({TaskState.ACCEPTED}) | _FROM_ANYWHERE,
    TaskState.ACCEPTED: frozenset({TaskState.FETCHING, TaskState.LATE}) | _FROM_ANYWHERE,
    TaskState.FETCHING: frozenset({TaskState.WORKING, TaskState.LATE}) | _FROM_ANYWHERE,
    # Back to fetching: the client was restarted and starts over.
    TaskState.WORKING: frozenset({TaskState.WAITING, TaskState.FETCHING, TaskState.LATE}) | _FROM_ANYWHERE,
    TaskState.WAITING: frozenset({TaskState.UPLOADING, TaskState.FETCHING, TaskState.LATE}) | _FROM_ANYWHERE,
    # Back to waiting: the upload broke, or was held because it is slow.
    TaskState.UPLOADING: frozenset({TaskState.SETTLED, TaskState.WAITING, TaskState.FETCHING, TaskState.LATE})
    | _FROM_ANYWHERE,
    **dict.fromkeys(ENDS, frozenset()),
}
"""The allowed transitions."""


class Transition(NamedTuple):
    """A change of state, as passed to an observer."""

    machine: Literal["round", "task"]
    before: str
    after: str
    now: float
    client: int | None = None  # of a task
    reason: str = ""

    @property
    def name(self) -> str:
        """The transition's name, for example "task offered -> accepted"."""
        return f"{self.machine} {self.before} -> {self.after}"


Observer = Callable[[Transition], None]
"""Called with every transition right after it happened. It must not raise."""


def unobserved(transition: Transition) -> None:
    """Ignore the transition."""


class TaskSeconds(NamedTuple):
    """A task's time by phase; `core.algorithm.Phases` has the same fields, as arrays over clients."""

    down: float  # fetching
    compute: float  # working
    up: float  # uploading, summed over several grants
    finish: float  # from the start of the exchange until the last change of state


class ClientTask:
    """The task of one client. It counts as offered from the start of the exchange, even without a connection."""

    def __init__(self, client: int, token: str, now: float) -> None:
        self.client, self.token = client, token
        self.state = TaskState.OFFERED
        self.reason = ""  # of the last transition
        self.entered: dict[TaskState, float] = {TaskState.OFFERED: now}  # when each state was entered last
        self.size = 0  # bytes of the answer, as announced
        self.num_bytes = 0  # received in the current upload
        self.uploads = 0  # begun so far: the number of the current upload
        self._started = self._renewed = now
        self._spent: defaultdict[TaskState, float] = defaultdict(float)

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.state in ENDS

    @property
    def was_accepted(self) -> bool:
        """Whether the client accepted the task, whatever its outcome."""
        return TaskState.ACCEPTED in self.entered

    def advance(self, state: TaskState, now: float, reason: str = "") -> None:
        """Enter a state, which renews the lease; raise a ValueError if it may not follow the current one."""
        if state not in TASK_TRANSITIONS[self.state]:
            allowed = ", ".join(sorted(TASK_TRANSITIONS[self.state])) or "none, it has ended"
            raise ValueError(f"task of client {self.client}: {self.state} cannot become {state}; allowed: {allowed}")
        self._spent[self.state] += now - self.entered[self.state]
        self.state, self.reason = state, reason
        self.entered[state] = self._renewed = now

    def renew(self, now: float) -> None:
        """Renew the lease."""
        self._renewed = now

    def lease_end(self, lease_s: float) -> float:
        """Return when the lease expires unless it is renewed."""
        return self._renewed + lease_s

    def expired(self, now: float, lease_s: float) -> bool:
        """Return whether the lease of a task that has not ended has expired."""
        return not self.ended and now >= self.lease_end(lease_s)

    def seconds(self) -> TaskSeconds:
        """Return the time spent in each phase up to the last transition."""
        return TaskSeconds(
            self._spent[TaskState.FETCHING],
            self._spent[TaskState.WORKING],
            self._spent[TaskState.UPLOADING],
            self.entered[self.state] - self._started,
        )
