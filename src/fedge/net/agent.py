"""A client: it keeps a session with its server, and works on what it is offered.

Its event loop runs in a thread, which answers the server and shows that the client lives. The main thread trains.
"""

from __future__ import annotations

import asyncio
import queue
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from msgspec import Raw, Struct

from fedge.client.client_side import ClientSide
from fedge.client.perform import LocalStep
from fedge.client.serve import REQUESTS, Response, respond
from fedge.client.versions import StateDirectory
from fedge.core import message
from fedge.core.algorithm import Kept
from fedge.core.errors import FedgeError, NetworkError, StreamError
from fedge.core.layout import Tree
from fedge.core.message import NoMeta, Outgoing
from fedge.core.version import Version
from fedge.net.chunks import in_chunks
from fedge.net.loop_thread import LoopThread
from fedge.net.policy import OfferFacts, Policy
from fedge.net.protocol import (
    FINAL,
    INITIAL,
    PROTOCOL,
    Accept,
    Activity,
    Beat,
    Decline,
    Done,
    Facts,
    Failed,
    Finished,
    FromClient,
    FromServer,
    Goodbye,
    Grant,
    Hello,
    Hold,
    InputMoments,
    Joined,
    Offer,
    Pulse,
    Ready,
    Refused,
    Scaled,
    Settled,
    Welcome,
    Withdraw,
    encode,
    read_server,
)
from fedge.net.transport import ClientStreams, DeniedError, LinkError
from fedge.net.views import ClientView

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
"""Between two attempts to reach the server."""
ANSWER_S = 120.0
"""Seconds for the server to answer while joining."""
MAX_INITIAL_BYTES = message.MAX_BYTES
BUSY_BEATS = 3
"""While it works, a client shows so many times as often that it lives."""
M = TypeVar("M", bound=Struct)
T = TypeVar("T")


class Built(NamedTuple):
    """A client's side of a run, as the server's plan has it."""

    side: ClientSide
    digests: dict[str, str]
    facts: Facts
    moments: InputMoments | None = None


class Builder(Protocol):
    def __call__(self, plan: Raw, number: int, initial: Tree, kept: Kept) -> Built:
        """Build the client's side; a FedgeError if plan, data or files do not fit."""

    def scale(self, built: Built, scaled: Scaled) -> Built:
        """Return the same side with inputs that are normalised."""

    def name_weights(self, built: Built, variables: Tree) -> Tree:
        """Return a model's variables as tensors by name, for people."""


class Withdrawn(Exception):  # noqa: N818 - it is no error
    """The work no longer counts."""


class BaseVersion:
    """`Kept` of one client: the version of private state that the present work builds on."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        self.version: Version | None = None
        self.first: Tree = {}  # the run's first state

    def read(self, client: int) -> Tree:
        found = self._state.read(self.version)
        return {name: value.clone() for name, value in self.first.items()} if found is None else found

    def write(self, client: int, tree: Tree) -> None:
        raise ValueError("private state on a network is written under the version of an offer")


class _Task:
    """What was offered, and how far the work is."""

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.activity: Activity = "idle"
        self.accepted = False
        self.size, self.changed = 0, False  # of the answer
        self.granted = asyncio.Event()
        self.withdrawn = False
        self.run: asyncio.Task[None] | None = None


class Agent:
    """A client's life, from its first connection until the run is complete."""

    def __init__(
        self,
        name: str,
        named: int | None,
        connect: Callable[[], Awaitable[ClientStreams]],
        state: StateDirectory,
        build: Builder,
        policy: Policy,
        view: ClientView,
        software: dict[str, str],
    ) -> None:
        self._name, self._named, self._connect, self._state = name, named, connect, state
        self._build, self._policy, self._view, self._software = build, policy, view, software
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._kept = BaseVersion(state)
        self._built: tuple[str, Built] | None = None  # and for which run
        self._plan = b""  # by which it was built
        self._scaled: Scaled | None = None  # by what its inputs are normalised
        self._number = -1
        self._task: _Task | None = None
        self._stream: ClientStreams | None = None  # while joined

    def run(self) -> None:
        """Take part until the run is complete. Raises NetworkError if a person has to act."""
        loop = LoopThread("network")
        done: Future[None] = loop.submit(self._live())
        done.add_done_callback(lambda _: self._jobs.put(None))
        try:
            while (job := self._jobs.get()) is not None:
                job()
            done.result()
        except BaseException:
            if not done.done():
                loop.call(self._say_goodbye("stopped by its owner"))
            raise
        finally:
            loop.stop()

    # The session

    async def _live(self) -> None:
        pause, silent = FIRST_PAUSE_S, False
        while True:
            stream: ClientStreams | None = None
            try:
                stream = await self._connect()
                await self._join(stream)
                pause, silent = FIRST_PAUSE_S, False
                if await self._take_part(stream):
                    return
            except DeniedError:
                if self._task is not None:
                    self._task.withdrawn = True  # else the main thread would train to the end
                raise
            except LinkError as error:
                if not silent:
                    self._view.notice(f"{error}; trying again")
                silent = True
                if self._task is None:
                    self._view.activity("not connected")
            finally:
                self._stream = None
                if stream is not None:
                    await stream.close()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _join(self, stream: ClientStreams) -> None:
        known = self._built[0] if self._built else self._state.run
        await stream.send(encode(Hello(PROTOCOL, self._name, known, self._named, self._software)))
        welcome = await self._answer(stream, Welcome)
        known_as = self._built and (self._built[0], self._number, self._plan)
        if self._built is None or known_as != (welcome.run, welcome.number, bytes(welcome.plan)):
            await self._abandon("the server has another plan")
            initial = (await self._fetch(stream, INITIAL, NoMeta, welcome.initial_bytes))[1]
            self._state.begin(welcome.run, welcome.number)
            built = await self._in_main(lambda: self._build(welcome.plan, welcome.number, initial, self._kept))
            self._built, self._number = (welcome.run, built), welcome.number
            self._plan, self._scaled = bytes(welcome.plan), None
            self._kept.first = built.side.algorithm.keep(built.side.network.variables)
        self._beat_s = min(max(welcome.beat_s, 1.0), 600.0)
        built = self._built[1]
        await stream.send(encode(Ready(built.digests, built.facts, built.moments)))
        await self._answer(stream, Joined)
        self._stream = stream
        self._view.connected(welcome.run, welcome.number)

    async def _answer(self, stream: ClientStreams, kind: type[M]) -> M:
        """Return the server's next message, which must be of this kind."""
        try:
            async with asyncio.timeout(ANSWER_S):
                found = await self._receive(stream)
        except TimeoutError:
            raise LinkError(f"the server did not answer within {ANSWER_S:g} s") from None
        if not isinstance(found, kind):
            raise DeniedError(f"expected a message {kind.__name__.lower()} of the server, got {type(found).__name__}")
        return found

    async def _receive(self, stream: ClientStreams) -> FromServer:
        data = await stream.receive()
        if data is None:
            raise LinkError("the server has ended the session")
        try:
            found = read_server(data)
        except StreamError as error:
            raise DeniedError(f"the server says what this fedge does not understand: {error}") from None
        if isinstance(found, Refused):
            raise (DeniedError if found.final else LinkError)(f"the server refuses this client: {found.reason}")
        return found

    async def _take_part(self, stream: ClientStreams) -> bool:
        """Serve one session; True once the run is complete."""
        beats = asyncio.create_task(self._beat(stream))
        try:
            while True:
                found = await self._receive(stream)
                match found:
                    case Offer():
                        await self._offered(stream, found)
                    case Withdraw():
                        if self._task and self._task.offer.task == found.task:
                            await self._abandon(found.reason)
                    case Grant():
                        if self._task and self._task.offer.task == found.task:
                            self._task.granted.set()
                    case Hold():  # the upload under way is answered with "again"
                        if self._task and self._task.offer.task == found.task:
                            self._task.granted.clear()
                    case Done():
                        await self._finish(stream, found)
                        return True
                    case Scaled():
                        await self._scale(found)
                    case Pulse():
                        pass
                    case _:
                        raise DeniedError(f"the server sent {type(found).__name__}, which has no meaning now")
        finally:
            beats.cancel()

    async def _scale(self, scaled: Scaled) -> None:
        """Normalise the inputs; after a reconnection they are, and a main thread that trains must not be waited for."""
        if scaled != self._scaled:
            assert self._built is not None
            run, built = self._built
            self._built = run, await self._in_main(partial(self._build.scale, built, scaled))
            self._scaled = scaled

    async def _beat(self, stream: ClientStreams) -> None:
        silent = 0
        while True:
            await asyncio.sleep(self._beat_s / BUSY_BEATS)  # also while idle: work may begin meanwhile
            silent += 1
            task = self._task
            try:
                if task is not None and task.accepted:
                    await stream.send(encode(Beat(task.offer.task, task.activity)))
                elif silent >= BUSY_BEATS:
                    await stream.send(encode(Beat()))
                else:
                    continue
            except LinkError:
                return  # whoever receives finds out as well
            silent = 0

    async def _finish(self, stream: ClientStreams, done: Done) -> None:
        await self._abandon("the run is complete")
        assert self._built is not None
        _, variables = await self._fetch(stream, FINAL, NoMeta, done.final_bytes)
        weights = self._build.name_weights(self._built[1], variables)
        path = self._state.write_model(weights, {"run": self._built[0]})
        self._state.trim([done.durable] if done.durable else [])
        await stream.send(encode(Goodbye("the run is complete")))
        self._view.done(path)

    async def _say_goodbye(self, reason: str) -> None:
        await self._try_to_send(Goodbye(reason))
        if self._stream is not None:
            await self._stream.close()

    # Work

    async def _offered(self, stream: ClientStreams, offer: Offer) -> None:
        """Begin to work; a task that is under way continues, and the server is told how far it is."""
        task = self._task
        if task is not None and task.offer.task == offer.task:
            if task.accepted:
                await stream.send(encode(Accept(offer.task)))
            if task.size:
                task.granted.clear()
                await stream.send(encode(Finished(offer.task, task.size, task.changed)))
            return
        await self._abandon("the server offers something else")
        facts = OfferFacts(offer.kind, offer.round, offer.exchange, offer.num_bytes, offer.deadline_s)
        self._view.task(facts)
        if reason := await asyncio.to_thread(self._policy.decide, facts):
            self._view.settled("declined", reason)
            await stream.send(encode(Decline(offer.task, reason[:1000])))
            return
        self._task = task = _Task(offer)
        task.accepted = True
        await stream.send(encode(Accept(offer.task)))
        task.run = asyncio.create_task(self._work(task))

    async def _work(self, task: _Task) -> None:
        token = task.offer.task
        try:
            answer = await self._compute(task)
            task.size = answer.num_bytes
            await self._deliver(task, answer)
        except Withdrawn:
            pass
        except Exception as error:  # the model's code may raise anything; the next task may be another one
            reason = str(error) if isinstance(error, FedgeError) else f"{type(error).__name__}: {error}"
            self._view.settled("failed", reason)
            await self._try_to_send(Failed(token, reason[:1000]))
        finally:
            if self._task is task:
                self._task = None

    async def _compute(self, task: _Task) -> Outgoing:
        """Fetch what was offered, do the work, keep the private state, and return the answer."""
        offer = task.offer
        task.activity = "fetching"
        self._view.activity("fetching")
        meta, down = await self._fetch_again(task)
        task.activity = "working"
        self._view.activity("working")
        self._kept.version = offer.base
        assert self._built is not None
        side = self._built[1].side

        def work() -> Response:
            response = respond(side, self._number, meta, down, observe)
            if task.withdrawn:
                raise Withdrawn
            self._state.trim({version for version in (offer.durable, offer.base) if version is not None})
            if response.kept is not None and offer.kind == "work":
                self._state.write(offer.version, response.kept)
            return response

        def observe(step: LocalStep) -> None:
            if task.withdrawn:
                raise Withdrawn

        response = await self._in_main(work)
        task.changed = response.kept is not None
        return Outgoing(response.meta, response.tree)

    async def _deliver(self, task: _Task, answer: Outgoing) -> None:
        """Upload an answer as soon as the server grants it, as often as it takes."""
        token = task.offer.task
        await self._try_to_send(Finished(token, task.size, task.changed))
        while True:
            task.activity = "waiting"
            self._view.activity("waiting for the server to take the answer")
            await task.granted.wait()
            task.granted.clear()
            stream = self._stream
            if stream is None:
                continue  # offered again in the next session
            task.activity = "uploading"
            self._view.activity("uploading")
            try:
                settled = read_server(await stream.upload(token, _stream(answer)))
            except DeniedError as error:
                raise NetworkError(str(error)) from None
            except LinkError:
                await asyncio.sleep(FIRST_PAUSE_S)
                await self._try_to_send(Finished(token, task.size, task.changed))
                continue
            if not isinstance(settled, Settled):
                raise NetworkError(f"expected the verdict on an upload, got {type(settled).__name__}")
            if settled.verdict == "again":
                await self._try_to_send(Finished(token, task.size, task.changed))
                continue
            self._view.settled(settled.verdict, settled.reason)
            return

    async def _abandon(self, reason: str) -> None:
        """Stop working on the present task, if there is one."""
        if (task := self._task) is None or task.run is None:
            return
        task.withdrawn = True
        task.run.cancel()
        await asyncio.wait([task.run])
        self._task = None
        self._view.settled("withdrawn", reason)

    # Streams

    async def _try_to_send(self, what: FromClient) -> None:
        """Send a message of which the server learns in the next session otherwise."""
        if self._stream is not None:
            with suppress(LinkError):
                await self._stream.send(encode(what))

    async def _fetch_again(self, task: _Task) -> tuple[message.WorkRequest | message.EvaluationRequest, Tree]:
        """Fetch an offer's payload, in the next session if this one breaks."""
        offer = task.offer
        while True:
            stream = self._stream
            if stream is None:
                await asyncio.sleep(0.05)
                continue
            try:
                return await self._fetch(stream, offer.task, REQUESTS, offer.num_bytes, offer.checksum)
            except DeniedError as error:
                raise NetworkError(str(error)) from None
            except LinkError:
                await asyncio.sleep(FIRST_PAUSE_S)

    async def _fetch(
        self,
        stream: ClientStreams,
        token: str,
        kind: type[M] | tuple[type[M], ...],
        num_bytes: int,
        checksum: int | None = None,
    ) -> tuple[M, Tree]:
        """Return a payload; a StreamError if it is not the one that was announced."""
        reader: message.Reader[M] = message.Reader(kind, min(num_bytes, MAX_INITIAL_BYTES))
        async for chunk in stream.fetch(token):
            reader.feed(chunk)
        if checksum is not None and reader.checksum != checksum:
            raise StreamError("the payload is not the one that the server has offered: its checksum differs")
        return reader.finish()

    async def _in_main(self, work: Callable[[], T]) -> T:
        """Let the main thread do something, and return its result."""
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)

        self._jobs.put(job)
        return await asyncio.wrap_future(future)


async def _stream(answer: Outgoing) -> AsyncIterator[bytes]:
    for chunk in in_chunks(answer):
        yield chunk
