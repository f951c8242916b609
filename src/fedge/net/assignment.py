"""One exchange, or one evaluation, that the hub carries out: what clients are asked for, and what became of it."""

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
"""Opens the collection of an exchange: that of a round's state machine, or one alone."""


class Assignment(NamedTuple):
    """One exchange, or one evaluation."""

    kind: Kind
    round: int
    exchange: int
    attempt: int
    payload: Outgoing
    clients: Sequence[int]
    planned: int  # how many answers are wanted
    named: Callable[[int], Named]  # versions of a client's private state
    max_bytes: int  # of an answer
    examine: Callable[[int, Upload], str | None]  # why an answer is rejected

    def token(self, client: int) -> str:
        """Return a new name of a client's task, which only this client learns."""
        mark = "w" if self.kind == "work" else "q"
        return f"{mark}{self.round}-{self.exchange}-{self.attempt}-{client}-{secrets.token_hex(8)}"


class Conducted(NamedTuple):
    """What became of an assignment."""

    tasks: Mapping[int, ClientTask]
    uploads: Mapping[int, Upload]  # of clients whose answers arrived, rejected ones included
    reason: str  # why it was closed


def task_rows(assignment: Assignment, conducted: Conducted, now: float) -> Iterator[TaskRow]:
    """Yield what the registry keeps of each task."""
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
    """An assignment on its way."""

    def __init__(self, assignment: Assignment, collection: AnswerCollection, deadline: float) -> None:
        self.assignment, self.collection = assignment, collection
        self.deadline = deadline
        self.uploads: dict[int, Upload] = {}
        self.changed: set[int] = set()
        self.failure: StorageError | None = None  # why it cannot be continued
        self.client_of = {task.token: client for client, task in collection.tasks.items()}
        self.wake = asyncio.Event()
