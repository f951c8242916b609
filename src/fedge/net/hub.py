"""The server's side of all sessions, which conducts one exchange or evaluation at a time.

It runs in the transport's event loop. Clients' messages go to the state machine of the exchange, whose actions are
carried out here.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TypeVar

from fedge.core.errors import StorageError, StreamError
from fedge.core.message import Outgoing
from fedge.core.net_options import NetOptions
from fedge.net import protocol
from fedge.net.actions import Action, Close, Ignore, SendGrant, SendHold, SendOffer, SendWithdraw, ignored
from fedge.net.admission import IDLE_BEAT_S, ClientAdmission, Terms
from fedge.net.answer_intake import TASK_IS_OVER, AnswerIntake
from fedge.net.assignment import ActiveAssignment, Assignment, Conducted, Opener
from fedge.net.closing import Rules
from fedge.net.grants import Grants
from fedge.net.payloads import in_chunks
from fedge.net.registry import Registry
from fedge.net.session import Session
from fedge.net.spool import Spool
from fedge.net.task import ClientTask, TaskState
from fedge.net.transport import ControlStream, LinkError, Peer, RefusalError
from fedge.net.views import Log
from fedge.net.world import Named

T = TypeVar("T")
MISSED = 3
"""Heartbeats that a client may miss."""


class Hub:
    """A `Service`: sessions, payloads and uploads of one run."""

    def __init__(
        self,
        terms: Terms,
        options: NetOptions,
        members: Registry,
        log: Log,
        spool: Spool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terms, self._options, self._members, self._log, self._clock = terms, options, members, log, clock
        self._admission = ClientAdmission(terms, options, members)
        self._intake = AnswerIntake(spool, log, self._tell, self._count_up, clock)
        self._sessions: dict[int, Session] = {}  # the newest session of each joined client
        self.expected: set[int] = set()  # clients that joined and have not said goodbye
        self._active: ActiveAssignment | None = None
        self._arrived = asyncio.Event()
        self._final: tuple[Outgoing, Callable[[int], Named]] | None = None
        self.moments: dict[int, protocol.InputMoments] = {}  # of joined clients, if the plan asks for them
        self.scaled: protocol.Scaled | None = None  # how inputs are normalised
        self.bytes_down, self.bytes_up = 0, 0  # of payloads

    # Called by the engine

    def connected(self) -> list[int]:
        """Return the numbers of the connected clients, in ascending order."""
        return sorted(self._sessions)

    def counts(self) -> Counter[str]:
        """Return the number of connected clients in each state; clients without a task are idle."""
        active = self._active
        tasks = active.collection.tasks if active else {}
        return Counter(str(tasks[client].state) if client in tasks else "idle" for client in self._sessions)

    @property
    def problems(self) -> dict[str, str]:
        """The latest reasons, by name, why clients could not join; without clients that have joined since."""
        return dict(self._admission.problems)

    @property
    def progress(self) -> tuple[int, int, int]:
        """The numbers of clients that were asked, accepted, and answered."""
        if self._active is None:
            return 0, 0, 0
        tasks = self._active.collection.tasks.values()
        settled = sum(task.state == TaskState.SETTLED for task in tasks)
        return len(tasks), sum(task.was_accepted for task in tasks), settled

    def task_of(self, client: int) -> ClientTask | None:
        """Return a client's task in the current assignment; None if it has none."""
        return None if self._active is None else self._active.collection.tasks.get(client)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the current assignment closes; None if there is none."""
        return None if self._active is None else max(0.0, self._active.deadline - self._clock())

    async def wait_until(self, enough: Callable[[Sequence[int]], bool], timeout_s: float) -> bool:
        """Wait until `enough` is true of the connected clients; return False after the timeout."""
        end = self._clock() + timeout_s
        while not enough(self.connected()):
            self._arrived.clear()
            try:
                async with asyncio.timeout(max(0.0, end - self._clock())):
                    await self._arrived.wait()
            except TimeoutError:
                return enough(self.connected())
        return True

    async def conduct(self, assignment: Assignment, opener: Opener, rules: Rules) -> Conducted:
        """Conduct an assignment and return its outcome once it closes. Raises StorageError if the disk is full."""
        now = self._clock()
        tokens = {client: assignment.token(client) for client in assignment.clients}
        grants = Grants(self._options.buffer_bytes, min_rate=self._options.min_rate)
        collection = opener(rules, tokens, assignment.planned, grants, now)
        self._active = active = ActiveAssignment(assignment, collection, now + rules.deadline_s)
        self._carry_out(active, collection.start(self._sessions, now))
        while collection.closed is None:
            active.wake.clear()
            wake = collection.next_wake()
            try:
                async with asyncio.timeout(None if wake is None else max(0.0, wake - self._clock())):
                    await active.wake.wait()
            except TimeoutError:
                pass
            if active.failure is not None:
                self._active = None
                raise active.failure
            self._carry_out(active, collection.tick(self._clock()))
        self._active = None
        # A copy, so that uploads that end later cannot change it while another thread reads it.
        return Conducted(collection.tasks, dict(active.uploads), collection.closed)

    async def finish(self, final: Outgoing, named: Callable[[int], Named], linger_s: float) -> None:
        """Tell all clients that the run is complete, and wait up to `linger_s` for their goodbyes."""
        self._final = final, named
        for session in self._sessions.values():
            self._send_done(session)
        end = self._clock() + linger_s
        while self.expected and self._clock() < end:
            await asyncio.sleep(min(0.05, max(0.0, end - self._clock())))

    async def scale(self, scaled: protocol.Scaled) -> None:
        """Tell all clients, and those that join later, how to normalise their inputs."""
        self.scaled = scaled
        for session in self._sessions.values():
            session.send(scaled)

    async def pulse(self) -> None:
        """Send heartbeats to idle clients until cancelled."""
        while True:
            await asyncio.sleep(IDLE_BEAT_S)
            for session in self._sessions.values():
                session.send(protocol.Pulse())

    # Called by the transport

    async def session(self, peer: Peer, stream: ControlStream) -> None:
        session = Session(peer, stream)
        try:
            await self._join(session)
            await self._listen(session)
        except (RefusalError, StreamError) as error:
            final = session.number is None and isinstance(error, RefusalError)
            session.send(protocol.Refused(str(error)[:1000], final))
            self._log.append(
                "refuse", name=session.name, client=session.number, address=peer.address, reason=str(error)
            )
        except LinkError as error:
            if session.number is None:
                self._log.append("drop", name=session.name, reason=str(error))
            session.farewell = str(error)
        except StorageError as error:
            session.send(protocol.Refused(f"disk error on the server: {error}"[:1000], final=False))
        finally:
            self._leave(session)
            await session.close()

    async def fetch(self, peer: Peer, token: str) -> AsyncIterator[bytes]:
        payload, active, client = self._logged(peer, lambda: self._payload(peer, token))
        if active is not None:
            self._tell(active, active.collection.fetching(client, token, self._clock()))
        for chunk in in_chunks(payload):
            yield chunk
            self.bytes_down += len(chunk)
            if active is not None:
                self._carry_out(active, active.collection.beat(client, token, self._clock()))
                self._members.count_bytes(client, down=len(chunk))
        if active is not None:
            self._carry_out(active, active.collection.fetched(client, token, self._clock()))

    async def upload(self, peer: Peer, token: str, chunks: AsyncIterator[bytes]) -> bytes:
        self._logged(peer, lambda: self._admission.check_revoked(peer))
        active, client = self._logged(peer, lambda: self._find(peer, token))
        if active is None:
            self._log.append("ignore", name=peer.name, address=peer.address, reason=TASK_IS_OVER)
            return protocol.encode(protocol.Settled(token, "late", TASK_IS_OVER))
        return protocol.encode(await self._intake.take(active, client, token, chunks))

    # Sessions

    async def _join(self, session: Session) -> None:
        number, hello, ready = await self._admission.greet(session)
        session.number = number
        if (before := self._sessions.pop(number, None)) is not None:
            before.cut()
        self._sessions[number] = session
        self.expected.add(number)
        session.send(protocol.Joined())
        if ready.moments is not None:
            self.moments[number] = ready.moments
        if self.scaled is not None:
            session.send(self.scaled)
        told = {name: text for name, text in hello.software.items() if name in ("fedge", "torch", "cpu")}
        self._log.append("join", name=hello.name, client=number, address=session.peer.address, **told)
        self._arrived.set()
        if self._final is not None:
            self._send_done(session)
        elif active := self._active:
            self._carry_out(active, active.collection.connected(number, self._clock()))

    def _leave(self, session: Session) -> None:
        number = session.number
        if number is None or self._sessions.get(number) is not session:
            return
        del self._sessions[number]
        self._members.seen(number, time.time(), "away")
        self._log.append("leave", name=session.name, client=number, reason=session.farewell)
        if active := self._active:
            self._carry_out(active, active.collection.disconnected(number, self._clock()))

    async def _listen(self, session: Session) -> None:
        number = session.number
        assert number is not None
        while (message := await session.receive(IDLE_BEAT_S * MISSED)) is not None:
            self._members.seen(number, time.time(), message.activity if isinstance(message, protocol.Beat) else None)
            if isinstance(message, protocol.Goodbye):
                session.farewell = message.reason or "the client said goodbye without a reason"
                self.expected.discard(number)
                if active := self._active:
                    self._carry_out(active, active.collection.left(number, message.reason, self._clock()))
                return
            if isinstance(message, protocol.Hello | protocol.Ready):
                raise RefusalError("the client has already joined")
            if not (isinstance(message, protocol.Beat) and message.task is None):
                self._handle(session, number, message)
        session.farewell = "the client closed its session"

    def _handle(self, session: Session, client: int, message: protocol.FromClient) -> None:
        """Pass a message about a task to the state machine; if the task is over, tell the client."""
        assert isinstance(
            message, protocol.Accept | protocol.Decline | protocol.Beat | protocol.Finished | protocol.Failed
        )
        token = message.task or ""
        active = self._active
        if active is None or active.client_of.get(token) != client:
            self._log.append("ignore", name=session.name, client=client, reason=TASK_IS_OVER)
            if not isinstance(message, protocol.Decline):
                session.send(protocol.Withdraw(token, TASK_IS_OVER))
            return
        now, collection = self._clock(), active.collection
        match message:
            case protocol.Accept():
                actions = collection.accepted(client, token, now)
            case protocol.Decline():
                actions = collection.declined(client, token, message.reason, now)
            case protocol.Beat():
                actions = collection.beat(client, token, now)
            case protocol.Failed():
                actions = collection.failed(client, token, message.reason, now)
            case protocol.Finished():
                actions = self._intake.announce(active, client, message)
        found = ignored(actions)
        if found is not None and found.state is not None and not isinstance(message, protocol.Decline):
            session.send(protocol.Withdraw(token, found.reason[:1000]))
        self._carry_out(active, actions)

    # Payloads

    def _payload(self, peer: Peer, token: str) -> tuple[Outgoing, ActiveAssignment | None, int]:
        self._admission.check_revoked(peer)
        if token == protocol.INITIAL:
            return self._terms.initial, None, -1
        if token == protocol.FINAL and self._final is not None:
            return self._final[0], None, -1
        active, client = self._find(peer, token)
        if active is None:
            raise RefusalError(TASK_IS_OVER)
        return active.assignment.payload, active, client

    def _find(self, peer: Peer, token: str) -> tuple[ActiveAssignment | None, int]:
        """Return the active assignment and the client whose task has this token, which only that client knows."""
        active = self._active
        client = active.client_of.get(token, -1) if active else -1
        session = self._sessions.get(client)
        if session is not None and session.peer.name != peer.name:
            raise RefusalError("this task belongs to another client")
        return (active, client) if client >= 0 else (None, -1)

    def _logged(self, peer: Peer, find: Callable[[], T]) -> T:
        """Return the result of `find`; log a refusal."""
        try:
            return find()
        except RefusalError as error:
            self._log.append("refuse", name=peer.name, address=peer.address, reason=str(error))
            raise

    def _count_up(self, client: int, num_bytes: int) -> None:
        self.bytes_up += num_bytes
        self._members.count_bytes(client, up=num_bytes)

    # Actions

    def _tell(self, active: ActiveAssignment, actions: Sequence[Action]) -> Ignore | None:
        """Carry out actions; return why their event was ignored, or None."""
        self._carry_out(active, actions)
        return ignored(actions)

    def _carry_out(self, active: ActiveAssignment, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Close):
                active.wake.set()
                continue
            session = self._sessions.get(action.client)
            task = active.collection.tasks.get(action.client)
            if isinstance(action, Ignore):
                self._log.append("ignore", client=action.client, reason=action.reason)
            if session is None or task is None:
                continue
            match action:
                case SendOffer():
                    self._offer(active, session, task)
                case SendWithdraw():
                    session.send(protocol.Withdraw(task.token, action.reason[:1000]))
                case SendGrant():
                    session.send(protocol.Grant(task.token))
                case SendHold():
                    session.send(protocol.Hold(task.token))
        active.wake.set()

    def _offer(self, active: ActiveAssignment, session: Session, task: ClientTask) -> None:
        try:
            self._admission.check_revoked(session.peer)
        except RefusalError as error:
            session.dismiss(str(error))
            self._log.append("refuse", name=session.name, client=task.client, reason=str(error))
            self._carry_out(active, active.collection.withdraw(task.client, str(error), self._clock()))
            self.expected.discard(task.client)
            self._leave(session)
            return
        assignment, payload = active.assignment, active.assignment.payload
        durable, base = assignment.named(task.client)
        if assignment.kind == "work":  # evaluations cost nothing and are not logged
            self._log.append("offer", client=task.client, exchange=assignment.exchange, bytes=payload.num_bytes)
        left = active.deadline - self._clock()
        session.send(
            protocol.Offer(
                task.token,
                assignment.kind,
                assignment.round,
                assignment.exchange,
                assignment.attempt,
                payload.num_bytes,
                payload.checksum,
                max(0.0, left),
                durable,
                base,
            )
        )

    def _send_done(self, session: Session) -> None:
        assert self._final is not None
        assert session.number is not None
        final, named = self._final
        session.send(protocol.Done(named(session.number).base, final.num_bytes))
