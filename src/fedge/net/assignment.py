"""One exchange or evaluation that the hub carries out: the request to clients, its progress and its outcome."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fedge.core.errors import StorageError
from fedge.core.message import Outgoing
from fedge.net.closing import Rules
from fedge.net.collection import AnswerCollection
from fedge.net.grants import Grants
from fedge.net.protocol import Kind
from fedge.net.registry import TaskRow
from fedge.net.spool import Upload
from fedge.net.task import ClientTask
from fedge.net.world import Named

Opener = Callable[[Rules, Mapping[int, str], int, Grants, float], AnswerCollection]
"""Opens the collection of an exchange, inside a round's state machine or standalone."""


class Assignment(NamedTuple):
    """The request of one exchange or evaluation to its clients."""

    kind: Kind
    round: int
    exchange: int
    attempt: int
    payload: Outgoing
    clients: Sequence[int]
    planned: int  # number of answers wanted
    named: Callable[[int], Named]  # versions of a client's private state
    max_bytes: int  # per answer
    examine: Callable[[int, Upload], str | None]  # returns why an answer is rejected, or None

    def token(self, client: int) -> str:
        """Return a new secret token that names a client's task; only this client learns it."""
        mark = "w" if self.kind == "work" else "q"
        return f"{mark}{self.round}-{self.exchange}-{self.attempt}-{client}-{secrets.token_hex(8)}"


class Conducted(NamedTuple):
    """The outcome of an assignment."""

    tasks: Mapping[int, ClientTask]
    uploads: Mapping[int, Upload]  # of clients whose answers arrived, rejected ones included
    reason: str  # why it was closed


def task_rows(assignment: Assignment, conducted: Conducted, now: float) -> Iterator[TaskRow]:
    """Yield the registry's row for each task."""
    for client, task in conducted.tasks.items():
        seconds, upload = task.seconds(), conducted.uploads.get(client)
        yield TaskRow(
            task.token,
            client,
            assignment.round,
            assignment.exchange,
            assignment.attempt,
            assignment.kind,
            str(task.state),
            now,
            task.reason,
            assignment.payload.num_bytes if seconds.down else 0,
            upload.num_bytes if upload else 0,
            seconds.down,
            seconds.compute,
            seconds.up,
        )


class ActiveAssignment:
    """An assignment in progress."""

    def __init__(self, assignment: Assignment, collection: AnswerCollection, deadline: float) -> None:
        self.assignment, self.collection = assignment, collection
        self.deadline = deadline
        self.uploads: dict[int, Upload] = {}
        self.changed: set[int] = set()
        self.failure: StorageError | None = None  # why it cannot continue
        self.client_of = {task.token: client for client, task in collection.tasks.items()}
        self.wake = asyncio.Event()
