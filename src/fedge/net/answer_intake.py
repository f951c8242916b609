"""Intake of clients' answers: announced, written to the spool, examined, and accepted or rejected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from fedge.core.errors import StorageError
from fedge.net.actions import Action, Ignore, SendWithdraw, ignored
from fedge.net.assignment import ActiveAssignment
from fedge.net.protocol import Finished, Settled
from fedge.net.spool import Spool, Upload
from fedge.net.task import TaskState
from fedge.net.transport import LinkError
from fedge.net.views import Log

TASK_IS_OVER = "this task no longer counts"
_UNREAD = Upload(None, 0, changed=False)
"""Stands for an answer that was rejected before it was read."""


class AnswerIntake:
    """Receives the uploads of one run.

    `tell` carries out the actions of a state machine and returns why an event was ignored; `count_bytes` counts the
    bytes that a client sent.
    """

    def __init__(
        self,
        spool: Spool,
        log: Log,
        tell: Callable[[ActiveAssignment, Sequence[Action]], Ignore | None],
        count_bytes: Callable[[int, int], None],
        clock: Callable[[], float],
    ) -> None:
        self._spool, self._log, self._tell, self._count_bytes, self._clock = spool, log, tell, count_bytes, clock
        self._examining = asyncio.Lock()

    def announce(self, active: ActiveAssignment, client: int, message: Finished) -> list[Action]:
        """Record that a client has an answer; reject one that is too large."""
        most = active.assignment.max_bytes
        if message.size > most:
            reason = f"expected an answer of at most {most} bytes, got {message.size}"
            actions = active.collection.rejected_unseen(client, message.task, reason, self._clock())
            if ignored(actions) is None:
                active.uploads[client] = _UNREAD
                actions.append(SendWithdraw(client, reason))  # otherwise the client would wait for a grant
            return actions
        if message.changed:
            active.changed.add(client)
        return active.collection.finished(client, message.task, message.size, self._clock())

    async def take(self, active: ActiveAssignment, client: int, token: str, chunks: AsyncIterator[bytes]) -> Settled:
        """Receive one upload and return its verdict. Raises LinkError if the connection breaks."""
        collection, task = active.collection, active.collection.tasks[client]
        if found := self._tell(active, collection.upload_began(client, token, self._clock())):
            return _settled(token, found)
        number, stopped = task.uploads, Ignore(client, "")

        def count(num_bytes: int) -> bool:
            nonlocal stopped
            self._count_bytes(client, num_bytes)
            found = self._tell(active, collection.progress(client, token, number, num_bytes, self._clock()))
            stopped = found or stopped
            return found is None

        try:
            file = await self._spool.take(f"{token}.{number}", chunks, count)
        except LinkError as error:
            self._log.append("drop", client=client, reason=f"its upload broke: {error}")
            self._tell(active, collection.upload_broke(client, token, number, self._clock()))
            raise
        except StorageError as error:
            self._log.append("disk", client=client, reason=str(error))
            active.failure = error
            self._tell(active, collection.upload_broke(client, token, number, self._clock()))
            return Settled(token, "again", "the server's disk is full")
        if file is None:
            return self._keep_rejected(active, client, _settled(token, stopped))
        upload = Upload(file, task.num_bytes, client in active.changed)
        if task.num_bytes < task.size:
            reason: str | None = f"its answer is truncated: expected {task.size} bytes, got {task.num_bytes}"
        else:
            try:
                async with self._examining:  # only one answer at a time in memory
                    reason = await asyncio.to_thread(active.assignment.examine, client, upload)
            except FileNotFoundError:  # the exchange closed meanwhile, and its uploads were deleted
                reason = TASK_IS_OVER
        if reason is not None:
            found = self._tell(active, collection.rejected(client, token, number, reason, self._clock()))
            if found is None:
                active.uploads[client] = upload
                return Settled(token, "rejected", reason[:1000])
        else:
            found = self._tell(active, collection.received(client, token, number, self._clock()))
            if found is None:
                active.uploads[client] = upload  # `conduct` cannot have run since
                return Settled(token, "received")
        file.unlink(missing_ok=True)
        return _settled(token, found)

    def _keep_rejected(self, active: ActiveAssignment, client: int, settled: Settled) -> Settled:
        """Record an answer that was rejected before it was read."""
        if settled.verdict == "rejected":
            active.uploads[client] = _UNREAD
        return settled


def _settled(token: str, found: Ignore) -> Settled:
    """Return the answer to an upload that was ignored."""
    verdict = {None: "again", TaskState.REJECTED: "rejected"}.get(found.state, "late")
    return Settled(token, verdict, found.reason[:1000])  # type: ignore[arg-type]
