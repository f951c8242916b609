"""A client: it keeps a session with its server and carries out the tasks that it is offered.

Its event loop runs in a thread, which answers the server and sends heartbeats. The main thread trains.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from msgspec import Raw, Struct

from fedge.client.client_side import ClientSide
from fedge.client.state_directory import StateDirectory
from fedge.core.algorithm import Kept
from fedge.core.errors import StreamError
from fedge.core.layout import Tree
from fedge.core.message import NoMeta
from fedge.net import protocol
from fedge.net.loop_thread import LoopThread
from fedge.net.main_thread import MainThread
from fedge.net.offered_work import FIRST_PAUSE_S, OfferedWork, describe_failure
from fedge.net.payloads import fetch_payload
from fedge.net.policy import Policy
from fedge.net.transport import ClientStreams, DeniedError, LinkError
from fedge.net.views import ClientView

LONGEST_PAUSE_S = 60.0
"""Longest pause between two attempts to reach the server."""
ANSWER_S = 120.0
"""Time limit for the server's answers while joining."""
BUSY_BEATS = 3
"""A client that is working sends this many heartbeats per interval of an idle one."""
M = TypeVar("M", bound=Struct)


class Built(NamedTuple):
    """A client's side of a run, built from the server's plan."""

    side: ClientSide
    digests: dict[str, str]
    facts: protocol.Facts
    moments: protocol.InputMoments | None = None


class Builder(Protocol):
    def __call__(self, plan: Raw, number: int, initial: Tree, kept: Kept) -> Built:
        """Build the client's side; raise a FedgeError if plan, data or files do not match."""

    def scale(self, built: Built, scaled: protocol.Scaled) -> Built:
        """Return the same side with normalised inputs."""

    def name_weights(self, built: Built, variables: Tree) -> Tree:
        """Return a model's variables as named tensors, as a state dict has them."""


class Agent:
    """The client's main loop, from its first connection until the run is complete."""

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
        self._build, self._view, self._software = build, view, software
        self._main = MainThread()
        self._work = OfferedWork(state, policy, view, self._main)
        self._built: tuple[str, Built] | None = None  # with the id of its run
        self._plan = b""  # the plan it was built from
        self._scaled: protocol.Scaled | None = None  # how its inputs are normalised

    def run(self) -> None:
        """Take part until the run is complete. Raises NetworkError for problems that retrying cannot fix."""
        loop = LoopThread("network")
        done: Future[None] = loop.submit(self._live())
        try:
            self._main.work_until(done)
        except BaseException:
            if not done.done():
                loop.call(self._say_goodbye("stopped by its user"))
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
                if self._work.task is not None:
                    self._work.task.withdrawn = True  # otherwise the main thread would finish training first
                raise
            except LinkError as error:
                if not silent:
                    self._view.notice(f"{error}; retrying")
                silent = True
                if self._work.task is None:
                    self._view.activity("not connected")
            finally:
                self._work.stream = None
                if stream is not None:
                    await stream.close()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _join(self, stream: ClientStreams) -> None:
        known = self._built[0] if self._built else self._state.run
        await stream.send(
            protocol.encode(protocol.Hello(protocol.PROTOCOL, self._name, known, self._named, self._software))
        )
        welcome = await self._answer(stream, protocol.Welcome)
        known_as = self._built and (self._built[0], self._work.number, self._plan)
        if self._built is None or known_as != (welcome.run, welcome.number, bytes(welcome.plan)):
            await self._work.abandon("the server has another plan")
            initial = (await fetch_payload(stream, protocol.INITIAL, NoMeta, welcome.initial_bytes))[1]
            kept = self._work.kept
            try:
                self._state.begin(welcome.run, welcome.number)
                built = await self._main.call(lambda: self._build(welcome.plan, welcome.number, initial, kept))
            except Exception as error:  # files, data and user code may raise anything
                with suppress(LinkError):
                    await stream.send(protocol.encode(protocol.Goodbye(describe_failure(error))))
                raise
            self._built, self._work.side, self._work.number = (welcome.run, built), built.side, welcome.number
            self._plan, self._scaled = bytes(welcome.plan), None
            kept.first = built.side.algorithm.keep(built.side.network.variables)
        self._beat_s = min(max(welcome.beat_s, 1.0), 600.0)
        built = self._built[1]
        await stream.send(protocol.encode(protocol.Ready(built.digests, built.facts, built.moments)))
        await self._answer(stream, protocol.Joined)
        self._work.stream = stream
        self._view.connected(welcome.run, welcome.number)

    async def _answer(self, stream: ClientStreams, kind: type[M]) -> M:
        """Return the server's next message; raise a DeniedError if it is of another kind."""
        try:
            async with asyncio.timeout(ANSWER_S):
                found = await self._receive(stream)
        except TimeoutError:
            raise LinkError(f"the server did not answer within {ANSWER_S:g} s") from None
        if not isinstance(found, kind):
            raise DeniedError(f"expected the message {kind.__name__} from the server, got {type(found).__name__}")
        return found

    async def _receive(self, stream: ClientStreams) -> protocol.FromServer:
        data = await stream.receive()
        if data is None:
            raise LinkError("the server ended the session")
        try:
            found = protocol.read_server(data)
        except StreamError as error:
            raise DeniedError(f"the server sent a message that this version of fedge cannot read: {error}") from None
        if isinstance(found, protocol.Refused):
            raise (DeniedError if found.final else LinkError)(f"the server refused this client: {found.reason}")
        return found

    async def _take_part(self, stream: ClientStreams) -> bool:
        """Serve one session; return True once the run is complete."""
        beats = asyncio.create_task(self._beat(stream))
        try:
            while True:
                found = await self._receive(stream)
                match found:
                    case protocol.Offer():
                        await self._work.take(stream, found)
                    case protocol.Withdraw():
                        if self._work.find(found.task):
                            await self._work.abandon(found.reason)
                    case protocol.Grant():
                        if task := self._work.find(found.task):
                            task.granted.set()
                    case protocol.Hold():  # the server answers the current upload with "again"
                        if task := self._work.find(found.task):
                            task.granted.clear()
                    case protocol.Done():
                        await self._finish(stream, found)
                        return True
                    case protocol.Scaled():
                        await self._scale(found)
                    case protocol.Pulse():
                        pass
                    case _:
                        raise DeniedError(f"unexpected message {type(found).__name__} from the server")
        finally:
            beats.cancel()

    async def _scale(self, scaled: protocol.Scaled) -> None:
        """Normalise the inputs, unless they already are: after a reconnection the main thread may be busy training."""
        if scaled != self._scaled:
            assert self._built is not None
            run, built = self._built
            scaled_side = await self._main.call(partial(self._build.scale, built, scaled))
            self._built, self._work.side, self._scaled = (run, scaled_side), scaled_side.side, scaled

    async def _beat(self, stream: ClientStreams) -> None:
        silent = 0
        while True:
            await asyncio.sleep(self._beat_s / BUSY_BEATS)  # also while idle, since work may begin meanwhile
            silent += 1
            task = self._work.task
            try:
                if task is not None and task.accepted:
                    await stream.send(protocol.encode(protocol.Beat(task.offer.task, task.activity)))
                elif silent >= BUSY_BEATS:
                    await stream.send(protocol.encode(protocol.Beat()))
                else:
                    continue
            except LinkError:
                return  # the receiving task notices the broken link too
            silent = 0

    async def _finish(self, stream: ClientStreams, done: protocol.Done) -> None:
        await self._work.abandon("the run is complete")
        assert self._built is not None
        _, variables = await fetch_payload(stream, protocol.FINAL, NoMeta, done.final_bytes)
        # In a thread, since a slow disk must not delay heartbeats.
        path = await asyncio.to_thread(self._keep_results, self._built, variables, done)
        await stream.send(protocol.encode(protocol.Goodbye("the run is complete")))
        self._view.done(path)

    def _keep_results(self, built: tuple[str, Built], variables: Tree, done: protocol.Done) -> Path:
        run, side = built
        path = self._state.write_model(self._build.name_weights(side, variables), {"run": run})
        self._state.trim([done.durable] if done.durable else [])
        return path

    async def _say_goodbye(self, reason: str) -> None:
        await self._work.try_to_send(protocol.Goodbye(reason))
        if self._work.stream is not None:
            await self._work.stream.close()
