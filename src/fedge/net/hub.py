"""The server's side of all sessions: who may join, and one exchange or evaluation at a time on its way.

It lives in the event loop of the transport. What clients say is passed to the state machine of the exchange, and the
actions that it returns are carried out here.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeVar

from msgspec import Raw

from fedge.core.errors import StorageError, StreamError
from fedge.core.message import Outgoing
from fedge.core.net_options import NetOptions
from fedge.net.actions import Action, Close, Ignore, SendGrant, SendHold, SendOffer, SendWithdraw, ignored
from fedge.net.chunks import in_chunks
from fedge.net.closing import Rules
from fedge.net.collection import AnswerCollection
from fedge.net.grants import Grants
from fedge.net.plan import first_difference
from fedge.net.protocol import (
    FINAL,
    INITIAL,
    PROTOCOL,
    Accept,
    Beat,
    Decline,
    Done,
    Facts,
    Failed,
    Finished,
    FromClient,
    Goodbye,
    Grant,
    Hello,
    Hold,
    InputMoments,
    Joined,
    Kind,
    Offer,
    Pulse,
    Ready,
    Refused,
    Scaled,
    Settled,
    Welcome,
    Withdraw,
    encode,
)
from fedge.net.session import Session
from fedge.net.spool import Spool, Upload
from fedge.net.task import ClientTask, TaskState
from fedge.net.transport import ControlStream, LinkError, Peer, RefusalError
from fedge.net.world import Named

T = TypeVar("T")
HELLO_S = 20.0
"""Seconds for a client's first message."""
BUILD_S = 3600.0
"""Seconds for a client to fetch the model and to build its side."""
IDLE_BEAT_S = 30.0
MISSED = 3
"""Beats that a client may miss."""
_TASK_IS_OVER = "this task no longer counts"
_UNREAD = Upload(None, 0, changed=False)
"""An answer that was rejected before it was read; it counts as rejected."""


class Members(Protocol):
    """Who has which number; durable."""

    def reserve(self, name: str, named: int | None) -> int: ...
    def release(self, name: str) -> None: ...
    def join(
        self,
        name: str,
        fingerprint: str | None,
        named: int | None,
        facts: Facts,
        now: float,
        address: str = "",
        expires_s: float | None = None,
    ) -> int: ...
    def seen(self, client: int, now: float, state: str | None = None) -> None: ...
    def count_bytes(self, client: int, down: int = 0, up: int = 0) -> None: ...


class Log(Protocol):
    def append(self, event: str, **fields: str | int | float | bool | None) -> None: ...


class Terms(NamedTuple):
    """What a client must agree to in order to join."""

    run: str  # the run's id
    plan: Raw
    initial: Outgoing  # variables and constants of the model
    digests: dict[str, str]
    shape: tuple[int, ...]
    num_outputs: int
    task: str
    num_clients: int | None  # numbers that data may name are below this; None: any
    is_revoked: Callable[[str], bool]  # by fingerprint
    problem_of_moments: Callable[[InputMoments | None, Facts], str | None] = lambda moments, facts: None


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


class Conducted(NamedTuple):
    """What became of an assignment."""

    tasks: Mapping[int, ClientTask]
    uploads: Mapping[int, Upload]  # of clients whose answers arrived, rejected ones included
    reason: str  # why it was closed


class _Active:
    """An assignment on its way."""

    def __init__(self, assignment: Assignment, collection: AnswerCollection, deadline: float) -> None:
        self.assignment, self.collection = assignment, collection
        self.deadline = deadline
        self.uploads: dict[int, Upload] = {}
        self.changed: set[int] = set()
        self.failure: StorageError | None = None  # why it cannot be continued
        self.client_of = {task.token: client for client, task in collection.tasks.items()}
        self.wake = asyncio.Event()


Opener = Callable[[Rules, Mapping[int, str], int, Grants, float], AnswerCollection]
"""Opens the collection of an exchange: that of a round's state machine, or one alone."""


class Hub:
    """A `Service`: sessions, payloads and uploads of one run."""

    def __init__(
        self,
        terms: Terms,
        options: NetOptions,
        members: Members,
        log: Log,
        spool: Spool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terms, self._options, self._members, self._log, self._spool = terms, options, members, log, spool
        self._clock = clock
        self._sessions: dict[int, Session] = {}  # the newest of each client that has joined
        self.expected: set[int] = set()  # clients that have joined, and have not said goodbye
        self._joining: Counter[str] = Counter()  # sessions that may join, by name
        self._active: _Active | None = None
        self._arrived = asyncio.Event()
        self._examining = asyncio.Lock()
        self._final: tuple[Outgoing, Callable[[int], Named]] | None = None
        self.moments: dict[int, InputMoments] = {}  # of the clients that have joined, if the plan asks for them
        self.scaled: Scaled | None = None  # by what their inputs are normalised
        self.bytes_down, self.bytes_up = 0, 0  # of payloads

    # What the engine asks for

    def connected(self) -> list[int]:
        """Return the numbers of the clients that can be asked now, in order."""
        return sorted(self._sessions)

    def counts(self) -> Counter[str]:
        """Return how many clients are in each state; those without a task are idle."""
        active = self._active
        tasks = active.collection.tasks if active else {}
        return Counter(str(tasks[client].state) if client in tasks else "idle" for client in self._sessions)

    @property
    def progress(self) -> tuple[int, int, int]:
        """How many clients are asked, have accepted, and have answered."""
        if self._active is None:
            return 0, 0, 0
        tasks = self._active.collection.tasks.values()
        settled = sum(task.state == TaskState.SETTLED for task in tasks)
        return len(tasks), sum(task.was_accepted for task in tasks), settled

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the assignment on its way closes; None if there is none."""
        return None if self._active is None else max(0.0, self._active.deadline - self._clock())

    async def wait_until(self, enough: Callable[[Sequence[int]], bool], timeout_s: float) -> bool:
        """Wait until the connected clients are enough; False if they are not within this time."""
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
        """Ask the clients of an assignment, and return once it is closed. Raises StorageError if the disk is full."""
        now = self._clock()
        tokens = {client: self._token(assignment, client) for client in assignment.clients}
        grants = Grants(self._options.buffer_bytes, min_rate=self._options.min_rate)
        collection = opener(rules, tokens, assignment.planned, grants, now)
        self._active = active = _Active(assignment, collection, now + rules.deadline_s)
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
        # A copy: uploads that end from now on change nothing for the thread that reads it.
        return Conducted(collection.tasks, dict(active.uploads), collection.closed)

    async def finish(self, final: Outgoing, named: Callable[[int], Named], linger_s: float) -> None:
        """Tell all clients that the run is complete, and stay for those that have not said goodbye."""
        self._final = final, named
        for session in self._sessions.values():
            self._send_done(session)
        end = self._clock() + linger_s
        while self.expected and self._clock() < end:
            await asyncio.sleep(min(0.05, max(0.0, end - self._clock())))

    async def scale(self, scaled: Scaled) -> None:
        """Let clients normalise their inputs like this from now on, and those that join later."""
        self.scaled = scaled
        for session in self._sessions.values():
            session.send(scaled)

    async def pulse(self) -> None:
        """Show idle clients that the server lives, until cancelled."""
        while True:
            await asyncio.sleep(IDLE_BEAT_S)
            for session in self._sessions.values():
                session.send(Pulse())

    # What the transport calls

    async def session(self, peer: Peer, stream: ControlStream) -> None:
        session = Session(peer, stream)
        try:
            await self._greet(session)
            await self._listen(session)
        except (RefusalError, StreamError) as error:
            final = session.number is None and isinstance(error, RefusalError)
            session.send(Refused(str(error)[:1000], final))
            self._log.append(
                "refuse", name=session.name, client=session.number, address=peer.address, reason=str(error)
            )
        except LinkError as error:
            if session.number is None:
                self._log.append("drop", name=session.name, reason=str(error))
            session.farewell = str(error)
        except StorageError as error:
            session.send(Refused(f"the server's disk fails: {error}"[:1000], final=False))
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
        return encode(await self._upload(peer, token, chunks))

    # Joining

    async def _greet(self, session: Session) -> None:
        hello = await session.receive(HELLO_S)
        if not isinstance(hello, Hello):
            raise RefusalError("expected a hello as the first message")
        peer = session.peer
        session.name = hello.name
        if hello.protocol != PROTOCOL:
            raise RefusalError(
                f"expected protocol {PROTOCOL}, got {hello.protocol}; install the same fedge as the server's"
            )
        if peer.name is not None and peer.name != hello.name:
            raise RefusalError(f"the client calls itself {hello.name!r}, but its certificate is of {peer.name!r}")
        self._check_revoked(peer)
        with self._reserving(hello.name):
            await self._admit(session, hello)

    @contextmanager
    def _reserving(self, name: str) -> Iterator[None]:
        """Keep the number that is reserved for a name as long as any of its sessions may still join."""
        self._joining[name] += 1
        try:
            yield
        finally:
            self._joining[name] -= 1
            if not self._joining[name]:
                del self._joining[name]
                self._members.release(name)

    async def _admit(self, session: Session, hello: Hello) -> None:
        peer, terms = session.peer, self._terms
        if terms.num_clients is not None and (hello.number or 0) >= terms.num_clients:
            raise RefusalError(f"expected a number below data.clients = {terms.num_clients}, got {hello.number}")
        number = await asyncio.to_thread(self._members.reserve, hello.name, hello.number)
        beat_s = min(IDLE_BEAT_S, self._options.lease_s)  # while working, a client beats several times as often
        session.send(Welcome(terms.run, number, terms.plan, terms.initial.num_bytes, beat_s))
        ready = await session.receive(BUILD_S)
        if ready is None:
            raise LinkError("the client left before it was ready")
        if not isinstance(ready, Ready):
            raise RefusalError("expected the client to be ready, got another message")
        if section := first_difference(terms.digests, ready.digests):
            raise RefusalError(
                f"the client has built something else than the server: the {section} differ. Use the same version of "
                "fedge, the same files, and data of the same shape"
            )
        self._check_facts(ready.facts)
        if problem := terms.problem_of_moments(ready.moments, ready.facts):
            raise RefusalError(f"the moments of the client's inputs cannot be: {problem}")
        self._check_revoked(peer)
        await asyncio.to_thread(
            self._members.join,
            hello.name,
            peer.fingerprint,
            hello.number,
            ready.facts,
            time.time(),
            peer.address,
            peer.expires_s,
        )
        session.number = number
        if (before := self._sessions.pop(number, None)) is not None:
            before.cut()
        self._sessions[number] = session
        self.expected.add(number)
        session.send(Joined())
        if ready.moments is not None:
            self.moments[number] = ready.moments
        if self.scaled is not None:
            session.send(self.scaled)
        told = {name: text for name, text in hello.software.items() if name in ("fedge", "torch", "cpu")}
        self._log.append("join", name=hello.name, client=number, address=peer.address, **told)
        self._arrived.set()
        if self._final is not None:
            self._send_done(session)
        elif active := self._active:
            self._carry_out(active, active.collection.connected(number, self._clock()))

    def _check_revoked(self, peer: Peer) -> None:
        if peer.fingerprint is not None and self._terms.is_revoked(peer.fingerprint):
            raise RefusalError(f"the certificate of {peer.name!r} is revoked; ask the server's operator for another")

    def _check_facts(self, facts: Facts) -> None:
        terms, most = self._terms, self._options.max_samples
        for name in ("shape", "num_outputs", "task"):
            expected, got = getattr(terms, name), getattr(facts, name)
            if got != expected:
                raise RefusalError(f"expected data with {name} {expected}, got {got}")
        for name in ("size", "test_size", "validation_size"):
            if getattr(facts, name) > most:
                raise RefusalError(f"expected {name} up to net.max_samples = {most}, got {getattr(facts, name)}")

    def _leave(self, session: Session) -> None:
        number = session.number
        if number is None or self._sessions.get(number) is not session:
            return
        del self._sessions[number]
        self._members.seen(number, time.time(), "away")
        self._log.append("leave", name=session.name, client=number, reason=session.farewell)
        if active := self._active:
            self._carry_out(active, active.collection.disconnected(number, self._clock()))

    # While it is joined

    async def _listen(self, session: Session) -> None:
        number = session.number
        assert number is not None
        while (message := await session.receive(IDLE_BEAT_S * MISSED)) is not None:
            self._members.seen(number, time.time(), message.activity if isinstance(message, Beat) else None)
            if isinstance(message, Goodbye):
                session.farewell = message.reason
                self.expected.discard(number)
                if active := self._active:
                    self._carry_out(active, active.collection.left(number, message.reason, self._clock()))
                return
            if isinstance(message, Hello | Ready):
                raise RefusalError("the client has joined already")
            if not (isinstance(message, Beat) and message.task is None):
                self._handle(session, number, message)

    def _handle(self, session: Session, client: int, message: FromClient) -> None:
        """Pass what a client says of a task to the state machine; of a task that is over, tell the client."""
        assert isinstance(message, Accept | Decline | Beat | Finished | Failed)
        token = message.task or ""
        active = self._active
        if active is None or active.client_of.get(token) != client:
            self._log.append("ignore", name=session.name, client=client, reason=_TASK_IS_OVER)
            if not isinstance(message, Decline):
                session.send(Withdraw(token, _TASK_IS_OVER))
            return
        now, collection = self._clock(), active.collection
        match message:
            case Accept():
                actions = collection.accepted(client, token, now)
            case Decline():
                actions = collection.declined(client, token, message.reason, now)
            case Beat():
                actions = collection.beat(client, token, now)
            case Failed():
                actions = collection.failed(client, token, message.reason, now)
            case Finished():
                actions = self._finished(active, client, message, now)
        found = ignored(actions)
        if found is not None and found.state is not None and not isinstance(message, Decline):
            session.send(Withdraw(token, found.reason[:1000]))
        self._carry_out(active, actions)

    def _finished(self, active: _Active, client: int, message: Finished, now: float) -> list[Action]:
        most = active.assignment.max_bytes
        if message.size > most:
            reason = f"its answer has {message.size} bytes, expected at most {most}"
            actions = active.collection.rejected(client, message.task, reason, now)
            if ignored(actions) is None:
                active.uploads[client] = _UNREAD
            return actions
        if message.changed:
            active.changed.add(client)
        return active.collection.finished(client, message.task, message.size, now)

    # Payloads

    def _payload(self, peer: Peer, token: str) -> tuple[Outgoing, _Active | None, int]:
        self._check_revoked(peer)
        if token == INITIAL:
            return self._terms.initial, None, -1
        if token == FINAL and self._final is not None:
            return self._final[0], None, -1
        active, client = self._find(peer, token)
        if active is None:
            raise RefusalError(_TASK_IS_OVER)
        return active.assignment.payload, active, client

    def _find(self, peer: Peer, token: str) -> tuple[_Active | None, int]:
        """Return the active assignment if a peer has this task in it: the token is a secret that only it knows."""
        active = self._active
        client = active.client_of.get(token, -1) if active else -1
        session = self._sessions.get(client)
        if session is not None and session.peer.name != peer.name:
            raise RefusalError("this is the task of another client")
        return (active, client) if client >= 0 else (None, -1)

    def _logged(self, peer: Peer, find: Callable[[], T]) -> T:
        """Return what is found for a peer; a refusal is logged."""
        try:
            return find()
        except RefusalError as error:
            self._log.append("refuse", name=peer.name, address=peer.address, reason=str(error))
            raise

    async def _upload(self, peer: Peer, token: str, chunks: AsyncIterator[bytes]) -> Settled:
        self._logged(peer, lambda: self._check_revoked(peer))
        active, client = self._logged(peer, lambda: self._find(peer, token))
        if active is None:
            self._log.append("ignore", name=peer.name, address=peer.address, reason=_TASK_IS_OVER)
            return Settled(token, "late", _TASK_IS_OVER)
        collection, task = active.collection, active.collection.tasks[client]
        if found := self._tell(active, collection.upload_began(client, token, self._clock())):
            return _settled(token, found)
        number, stopped = task.uploads, Ignore(client, "")

        def count(num_bytes: int) -> bool:
            nonlocal stopped
            self.bytes_up += num_bytes
            self._members.count_bytes(client, up=num_bytes)
            found = self._tell(active, collection.progress(client, token, number, num_bytes, self._clock()))
            stopped = found or stopped
            return found is None

        try:
            file = await self._spool.take(f"{token}.{number}", chunks, count)
        except LinkError as error:
            self._log.append("drop", client=client, reason=f"its upload broke: {error}")
            self._carry_out(active, collection.upload_broke(client, token, number, self._clock()))
            raise
        except StorageError as error:
            self._log.append("disk", client=client, reason=str(error))
            active.failure = error
            self._carry_out(active, collection.upload_broke(client, token, number, self._clock()))
            return Settled(token, "again", "the server's disk is full")
        if file is None:
            return self._keep_rejected(active, client, _settled(token, stopped))
        upload = Upload(file, task.num_bytes, client in active.changed)
        if task.num_bytes < task.size:
            reason: str | None = f"its answer is cut short: expected {task.size} bytes, got {task.num_bytes}"
        else:
            try:
                async with self._examining:  # one answer at a time is in memory
                    reason = await asyncio.to_thread(active.assignment.examine, client, upload)
            except FileNotFoundError:  # the exchange has closed meanwhile, and its uploads are deleted
                reason = _TASK_IS_OVER
        if reason is not None:
            found = self._tell(active, collection.rejected(client, token, reason, self._clock()))
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

    def _keep_rejected(self, active: _Active, client: int, settled: Settled) -> Settled:
        """Count an answer that was rejected before it was read."""
        if settled.verdict == "rejected":
            active.uploads[client] = _UNREAD
        return settled

    # Actions

    def _tell(self, active: _Active, actions: Sequence[Action]) -> Ignore | None:
        """Carry out actions; return why the event that led to them was ignored, if it was."""
        self._carry_out(active, actions)
        return ignored(actions)

    def _carry_out(self, active: _Active, actions: Iterable[Action]) -> None:
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
                    session.send(Withdraw(task.token, action.reason[:1000]))
                case SendGrant():
                    session.send(Grant(task.token))
                case SendHold():
                    session.send(Hold(task.token))
        active.wake.set()

    def _offer(self, active: _Active, session: Session, task: ClientTask) -> None:
        try:
            self._check_revoked(session.peer)
        except RefusalError as error:
            session.dismiss(str(error))
            self._log.append("refuse", name=session.name, client=task.client, reason=str(error))
            self._carry_out(active, active.collection.withdraw(task.client, str(error), self._clock()))
            self.expected.discard(task.client)
            self._leave(session)
            return
        assignment, payload = active.assignment, active.assignment.payload
        durable, base = assignment.named(task.client)
        left = active.deadline - self._clock()
        session.send(
            Offer(
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
        session.send(Done(named(session.number).base, final.num_bytes))

    @staticmethod
    def _token(assignment: Assignment, client: int) -> str:
        mark = "w" if assignment.kind == "work" else "q"
        place = f"{assignment.round}-{assignment.exchange}-{assignment.attempt}"
        return f"{mark}{place}-{client}-{secrets.token_hex(8)}"


def _settled(token: str, found: Ignore) -> Settled:
    """Return the answer to an upload that was ignored."""
    verdict = {None: "again", TaskState.REJECTED: "rejected"}.get(found.state, "late")
    return Settled(token, verdict, found.reason[:1000])  # type: ignore[arg-type]
