"""Collecting the answers of one exchange or evaluation, as a state machine: offers, grants, timeouts, closing.

It has no sockets and no clock: the driver reports events with their time, and carries out the returned actions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from fedge.net.actions import Action, Close, GrantAction, Ignore, SendHold, SendOffer, SendWithdraw
from fedge.net.closing import ClosingTime, Rules
from fedge.net.grants import Grants
from fedge.net.task import ClientTask, Observer, TaskState, Transition, unobserved


class AnswerCollection:
    """The tasks of one exchange.

    `tokens` maps each client to the token of its task. `planned` is the number of answers wanted, which is below the
    number of clients with over-selection. `grants` belongs to this collection alone. `on_close` is called with the
    reason and the time before the remaining tasks end.

    Clients may be hostile: an unexpected event is answered with `Ignore`. The driver must report `disconnected` only
    for a client's newest session.
    """

    def __init__(
        self,
        rules: Rules,
        tokens: Mapping[int, str],
        planned: int,
        grants: Grants,
        now: float,
        observer: Observer = unobserved,
        on_close: Callable[[str, float], None] | None = None,
    ) -> None:
        self.tasks = {client: ClientTask(client, token, now) for client, token in tokens.items()}
        self.closed: str | None = None  # the reason, once closed
        self._lease_s, self._grants = rules.lease_s, grants
        self._closing = ClosingTime(rules, len(self.tasks), planned, now)
        self._observer, self._on_close = observer, on_close
        self._lease_check = now + rules.lease_s  # no lease expires earlier
        self._connected: set[int] = set()

    def next_wake(self) -> float | None:
        """Return when to call `tick` if no event comes first; None once closed."""
        if self.closed is not None:
            return None
        return min(self._closing.next_wake(), self._lease_check, self._grants.next_wake())

    # Events of the network and the clock

    def start(self, connected: Iterable[int], now: float) -> list[Action]:
        """Offer the tasks to the clients that are connected."""
        self._connected.update(connected)
        return [*(SendOffer(client) for client in self.tasks if client in self._connected), *self._pass(now)]

    def connected(self, client: int, now: float) -> list[Action]:
        """Offer the task to a client that connected, whatever its state when its last session ended.

        A client whose answer is ready reports `finished` again; one that was restarted fetches again.
        """
        actions = self._pass(now)
        self._connected.add(client)
        task = self.tasks.get(client)
        if task is None or task.ended:
            return actions
        task.renew(now)
        return [*actions, SendOffer(client)]

    def disconnected(self, client: int, now: float) -> list[Action]:
        """Release the grant of a client that has not begun to upload; its lease and a running upload continue."""
        self._connected.discard(client)
        actions = self._pass(now)
        task = self.tasks.get(client)
        if task is not None and task.state == TaskState.WAITING:
            actions += self._release(client, now)
        return actions

    def tick(self, now: float) -> list[Action]:
        """Apply what depends on time: leases, slow uploads, the grace period and the deadline."""
        actions = self._pass(now)
        if self.closed is not None:
            return actions
        if now >= self._lease_check:
            reason = f"the lease of {self._lease_s:g} s has expired"
            for task in self._active():
                if task.expired(now, self._lease_s):
                    actions += self._dismiss(task, TaskState.LOST, reason, now)
            ends = [task.lease_end(self._lease_s) for task in self._active()]
            self._lease_check = min(ends, default=math.inf)
        return [*actions, *self._apply(self._grants.tick(now), now), *self._pass(now)]

    # Events of clients

    def accepted(self, client: int, token: str, now: float) -> list[Action]:
        """The client accepts the task; repeated, this only renews its lease."""
        return self._event(client, token, now, lambda task: self._accept(task, now))

    def declined(self, client: int, token: str, reason: str, now: float) -> list[Action]:
        """The client's policy declines the task, at once or after it had accepted."""
        return self._event(client, token, now, lambda task: self._end(task, TaskState.DECLINED, reason, now))

    def fetching(self, client: int, token: str, now: float) -> list[Action]:
        """The client begins to fetch the payload, which implies acceptance; a client that fetches again starts over."""

        def handle(task: ClientTask) -> Sequence[Action]:
            self._accept(task, now)  # the fetch stream may overtake the control stream
            if task.state == TaskState.FETCHING:
                return ()
            self._advance(task, TaskState.FETCHING, now)
            return self._release(client, now)

        return self._event(client, token, now, handle)

    def fetched(self, client: int, token: str, now: float) -> list[Action]:
        """The client has received the whole payload."""

        def handle(task: ClientTask) -> Sequence[Action]:
            if task.state != TaskState.FETCHING:
                return _unexpected(task, "end of a fetch")
            self._advance(task, TaskState.WORKING, now)
            return ()

        return self._event(client, token, now, handle)

    def beat(self, client: int, token: str, now: float) -> list[Action]:
        """A heartbeat for this task: renew its lease."""
        return self._event(client, token, now, lambda task: ())

    def finished(self, client: int, token: str, size: int, now: float) -> list[Action]:
        """The client has an answer of `size` bytes and needs a grant. During an upload this means that it broke."""

        def handle(task: ClientTask) -> Sequence[Action]:
            if task.state in (TaskState.OFFERED, TaskState.ACCEPTED):
                return _unexpected(task, "answer before the payload was fetched")
            if task.state == TaskState.FETCHING:  # the end of the fetch may be reported late
                self._advance(task, TaskState.WORKING, now)
            actions: Sequence[Action] = ()
            if task.state == TaskState.UPLOADING or size != task.size:
                actions = self._release(client, now)
            task.size = size
            if task.state != TaskState.WAITING:
                self._advance(task, TaskState.WAITING, now)
            return [*actions, *self._request(task, now)]

        return self._event(client, token, now, handle)

    def upload_began(self, client: int, token: str, now: float) -> list[Action]:
        """The client begins to upload; unless ignored, the upload's number is then `tasks[client].uploads`."""

        def handle(task: ClientTask) -> Sequence[Action]:
            if task.state != TaskState.WAITING:
                return _unexpected(task, "upload")
            if not self._grants.has_grant(client):
                return (Ignore(client, "expected a grant before the upload; wait for it"),)
            task.uploads, task.num_bytes = task.uploads + 1, 0
            self._advance(task, TaskState.UPLOADING, now)
            return ()

        return self._event(client, token, now, handle)

    def progress(self, client: int, token: str, upload: int, num_bytes: int, now: float) -> list[Action]:
        """`num_bytes` more bytes of an upload have arrived. If this is ignored, stop reading the upload."""

        def handle(task: ClientTask) -> Sequence[Action]:
            task.num_bytes += num_bytes
            if task.num_bytes > task.size:
                reason = f"expected an answer of {task.size} bytes, as announced, got at least {task.num_bytes}"
                return [*self._end(task, TaskState.REJECTED, reason, now), Ignore(client, reason, task.state)]
            if task.num_bytes == task.size:  # others need not wait for the gate
                return self._release(client, now)
            return self._apply(self._grants.progress(client, num_bytes, now), now)

        return self._upload_event(client, token, upload, now, handle)

    def upload_broke(self, client: int, token: str, upload: int, now: float) -> list[Action]:
        """An upload ended early: the client waits for another grant."""

        def handle(task: ClientTask) -> Sequence[Action]:
            self._advance(task, TaskState.WAITING, now, "the upload broke")
            return [*self._release(client, now), *self._request(task, now)]

        return self._upload_event(client, token, upload, now, handle)

    def received(self, client: int, token: str, upload: int, now: float) -> list[Action]:
        """An upload is complete and has passed the gate."""
        return self._upload_event(client, token, upload, now, lambda task: self._end(task, TaskState.SETTLED, "", now))

    def rejected(self, client: int, token: str, upload: int, reason: str, now: float) -> list[Action]:
        """The gate rejected an upload."""
        return self._upload_event(
            client, token, upload, now, lambda task: self._end(task, TaskState.REJECTED, reason, now)
        )

    def rejected_unseen(self, client: int, token: str, reason: str, now: float) -> list[Action]:
        """The announced answer is rejected before its upload."""
        return self._event(client, token, now, lambda task: self._end(task, TaskState.REJECTED, reason, now))

    def failed(self, client: int, token: str, reason: str, now: float) -> list[Action]:
        """The client cannot do the task, for example because its private state is missing."""
        return self._event(client, token, now, lambda task: self._end(task, TaskState.FAILED, reason, now))

    # Decisions of the server

    def left(self, client: int, reason: str, now: float) -> list[Action]:
        """End the task of a client that said goodbye."""
        return self._server_event(client, TaskState.LOST, reason, now)

    def withdraw(self, client: int, reason: str, now: float) -> list[Action]:
        """Withdraw one client's task, for example because its certificate was revoked."""
        return self._server_event(client, TaskState.WITHDRAWN, reason, now)

    def close(self, reason: str, now: float) -> list[Action]:
        """Close the exchange. Tasks that have not ended become late, or withdrawn if they were not accepted."""
        if self.closed is not None:
            return []
        self.closed = reason
        if self._on_close:
            self._on_close(reason, now)
        actions: list[Action] = []
        for task in self._active():
            self._advance(task, TaskState.LATE if task.was_accepted else TaskState.WITHDRAWN, now, reason)
            if task.client in self._connected:
                actions.append(SendWithdraw(task.client, reason))
        return [*actions, Close(reason)]

    # Implementation

    def _event(
        self, client: int, token: str, now: float, handle: Callable[[ClientTask], Sequence[Action]]
    ) -> list[Action]:
        actions = self._pass(now)
        task = self.tasks.get(client)
        if task is None or task.token != token:
            return [*actions, Ignore(client, "the client has no such task in this exchange")]
        if task.ended:
            reason = f"the task has ended as {task.state}" + (f": {task.reason}" if task.reason else "")
            return [*actions, Ignore(client, reason, task.state)]
        task.renew(now)
        return [*actions, *handle(task), *self._pass(now)]

    def _upload_event(
        self, client: int, token: str, upload: int, now: float, handle: Callable[[ClientTask], Sequence[Action]]
    ) -> list[Action]:
        """Handle an event of one upload; events of the task's earlier uploads are ignored."""

        def check(task: ClientTask) -> Sequence[Action]:
            if task.state == TaskState.UPLOADING and task.uploads == upload:
                return handle(task)
            return (Ignore(client, f"upload {upload} of the task is over; wait for the next grant"),)

        return self._event(client, token, now, check)

    def _server_event(self, client: int, state: TaskState, reason: str, now: float) -> list[Action]:
        actions = self._pass(now)
        task = self.tasks.get(client)
        if task is None or task.ended:
            return actions
        return [*actions, *self._dismiss(task, state, reason, now), *self._pass(now)]

    def _pass(self, now: float) -> list[Action]:
        """Close the exchange if it is time. Events at the deadline or later are late, even if nobody called `tick`."""
        reason = None if self.closed is not None else self._closing.reason(now)
        return [] if reason is None else self.close(reason, now)

    def _active(self) -> list[ClientTask]:
        return [task for task in self.tasks.values() if not task.ended]

    def _accept(self, task: ClientTask, now: float) -> Sequence[Action]:
        if task.state == TaskState.OFFERED:
            self._advance(task, TaskState.ACCEPTED, now)
        return ()

    def _end(self, task: ClientTask, state: TaskState, reason: str, now: float) -> list[Action]:
        self._advance(task, state, now, reason)
        return self._release(task.client, now)

    def _dismiss(self, task: ClientTask, state: TaskState, reason: str, now: float) -> list[Action]:
        """End a task by the server's decision, and tell the client."""
        told = [SendWithdraw(task.client, reason)] if task.client in self._connected else []
        return [*told, *self._end(task, state, reason, now)]

    def _advance(self, task: ClientTask, state: TaskState, now: float, reason: str = "") -> None:
        before = task.state
        task.advance(state, now, reason)
        self._closing.count(state, now)
        self._observer(Transition("task", before, state, now, task.client, reason))

    def _request(self, task: ClientTask, now: float) -> list[Action]:
        """Request a grant, unless the client is disconnected and could not receive it."""
        if task.client not in self._connected:
            return []
        return self._apply(self._grants.request(task.client, task.size, now), now)

    def _release(self, client: int, now: float) -> list[Action]:
        return self._apply(self._grants.release(client, now), now)

    def _apply(self, actions: Sequence[GrantAction], now: float) -> list[Action]:
        """Return held uploads to waiting; a disconnected client reports `finished` again once it reconnects."""
        found: list[Action] = [*actions]
        for client in [action.client for action in actions if isinstance(action, SendHold)]:
            if self.tasks[client].state == TaskState.UPLOADING:
                self._advance(self.tasks[client], TaskState.WAITING, now, "the upload is slow, and others wait")
            if client not in self._connected:
                found += self._release(client, now)
        return found


def _unexpected(task: ClientTask, what: str) -> tuple[Ignore]:
    return (Ignore(task.client, f"unexpected {what}: the task is {task.state}"),)
