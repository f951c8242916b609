"""A client's work on an offered task: fetch, train, store the private state, upload.

The task survives its session: in the next session the server offers it again, and the work continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from fedge.client.client_side import ClientSide
from fedge.client.perform import LocalStep
from fedge.client.serve import REQUESTS, Response, respond
from fedge.client.state_directory import StateDirectory
from fedge.core import message
from fedge.core.errors import FedgeError, NetworkError
from fedge.core.layout import Tree
from fedge.core.message import Outgoing
from fedge.core.printable import printable
from fedge.core.state_version import Version
from fedge.net import protocol
from fedge.net.main_thread import MainThread
from fedge.net.payloads import fetch_payload, in_chunks
from fedge.net.policy import OfferFacts, Policy
from fedge.net.transport import ClientStreams, DeniedError, LinkError
from fedge.net.views import ClientView

FIRST_PAUSE_S = 0.5
"""Pause after a broken stream, and before the second attempt to reach the server."""


class Withdrawn(Exception):  # noqa: N818 - not an error
    """The server withdrew the task."""


class BaseVersion:
    """`Kept` of one client: the version of private state that the current work builds on."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        self.version: Version | None = None
        self.first: Tree = {}  # the run's first state

    def read(self, client: int) -> Tree:
        found = self._state.read(self.version)
        return {name: value.clone() for name, value in self.first.items()} if found is None else found

    def write(self, client: int, tree: Tree) -> None:
        raise ValueError("private state on a network is written under the version of an offer")


class OfferedTask:
    """An offered task and the progress of the work on it."""

    def __init__(self, offer: protocol.Offer) -> None:
        self.offer = offer
        self.activity: protocol.Activity = "idle"
        self.accepted = False
        self.size, self.changed = 0, False  # of the answer
        self.granted = asyncio.Event()
        self.withdrawn = False
        self.run: asyncio.Task[None] | None = None


class OfferedWork:
    """A client's current task and its execution. `side` and `number` are set once the client's side is built."""

    def __init__(self, state: StateDirectory, policy: Policy, view: ClientView, main: MainThread) -> None:
        self._state, self._policy, self._view, self._main = state, policy, view, main
        self.kept = BaseVersion(state)
        self.side: ClientSide | None = None
        self.number = -1
        self.task: OfferedTask | None = None
        self.stream: ClientStreams | None = None  # while joined

    def find(self, token: str) -> OfferedTask | None:
        """Return the current task if it has this token, else None."""
        return self.task if self.task is not None and self.task.offer.task == token else None

    async def take(self, stream: ClientStreams, offer: protocol.Offer) -> None:
        """Start to work on an offer; if the task is already in progress, report its progress to the server."""
        task = self.task
        if task is not None and task.offer.task == offer.task:
            if task.accepted:
                await stream.send(protocol.encode(protocol.Accept(offer.task)))
            if task.size:
                task.granted.clear()
                await stream.send(protocol.encode(protocol.Finished(offer.task, task.size, task.changed)))
            return
        await self.abandon("the server offered another task")
        facts = OfferFacts(offer.kind, offer.round, offer.exchange, offer.num_bytes, offer.deadline_s)
        self._view.task(facts)
        if reason := await asyncio.to_thread(self._policy.decide, facts):
            self._view.settled("declined", reason)
            await stream.send(protocol.encode(protocol.Decline(offer.task, reason[:1000])))
            return
        self.task = task = OfferedTask(offer)
        task.accepted = True
        await stream.send(protocol.encode(protocol.Accept(offer.task)))
        task.run = asyncio.create_task(self._work(task))

    async def _work(self, task: OfferedTask) -> None:
        token = task.offer.task
        try:
            answer = await self._compute(task)
            task.size = answer.num_bytes
            await self._deliver(task, answer)
        except Withdrawn:
            pass
        except Exception as error:  # user code may raise anything, and the next task may succeed
            reason = describe_failure(error)
            self._view.settled("failed", reason)
            await self.try_to_send(protocol.Failed(token, reason))
        finally:
            if self.task is task:
                self.task = None

    async def _compute(self, task: OfferedTask) -> Outgoing:
        """Fetch the payload, do the work, store the private state, and return the answer."""
        offer = task.offer
        task.activity = "fetching"
        self._view.activity("fetching")
        meta, down = await self._fetch_again(task)
        task.activity = "working"
        self._view.activity("working")
        self.kept.version = offer.base
        assert self.side is not None
        side = self.side

        def work() -> Response:
            response = respond(side, self.number, meta, down, observe)
            if task.withdrawn:
                raise Withdrawn
            self._state.trim({version for version in (offer.durable, offer.base) if version is not None})
            if response.kept is not None and offer.kind == "work":
                self._state.write(offer.version, response.kept)
            return response

        def observe(step: LocalStep) -> None:
            if task.withdrawn:
                raise Withdrawn

        response = await self._main.call(work)
        task.changed = response.kept is not None
        return Outgoing(response.meta, response.tree)

    async def _deliver(self, task: OfferedTask, answer: Outgoing) -> None:
        """Upload an answer as soon as the server grants it, and retry until the server has it."""
        token = task.offer.task
        await self.try_to_send(protocol.Finished(token, task.size, task.changed))
        while True:
            task.activity = "waiting"
            self._view.activity("waiting to upload")
            await task.granted.wait()
            task.granted.clear()
            stream = self.stream
            if stream is None:
                continue  # the server offers the task again in the next session
            task.activity = "uploading"
            self._view.activity("uploading")
            try:
                settled = protocol.read_server(await stream.upload(token, _stream(answer)))
            except DeniedError as error:
                raise NetworkError(str(error)) from None
            except LinkError:
                await asyncio.sleep(FIRST_PAUSE_S)
                await self.try_to_send(protocol.Finished(token, task.size, task.changed))
                continue
            if not isinstance(settled, protocol.Settled):
                raise NetworkError(f"expected the verdict on an upload, got {type(settled).__name__}")
            if settled.verdict == "again":
                await self.try_to_send(protocol.Finished(token, task.size, task.changed))
                continue
            self._view.settled(settled.verdict, settled.reason)
            return

    async def abandon(self, reason: str) -> None:
        """Stop working on the current task, if there is one."""
        if (task := self.task) is None or task.run is None:
            return
        task.withdrawn = True
        task.run.cancel()
        await asyncio.wait([task.run])
        self.task = None
        self._view.settled("withdrawn", reason)

    async def try_to_send(self, what: protocol.FromClient) -> None:
        """Send a message if connected; otherwise the server learns its content in the next session."""
        if self.stream is not None:
            with suppress(LinkError):
                await self.stream.send(protocol.encode(what))

    async def _fetch_again(self, task: OfferedTask) -> tuple[message.WorkRequest | message.EvaluationRequest, Tree]:
        """Fetch an offer's payload; retry in the next session if this one breaks."""
        offer = task.offer
        while True:
            stream = self.stream
            if stream is None:
                await asyncio.sleep(0.05)
                continue
            try:
                return await fetch_payload(stream, offer.task, REQUESTS, offer.num_bytes, offer.checksum)
            except DeniedError as error:
                raise NetworkError(str(error)) from None
            except LinkError:
                await asyncio.sleep(FIRST_PAUSE_S)


def describe_failure(error: Exception) -> str:
    """Return a client's failure as text for the server."""
    reason = str(error) if isinstance(error, FedgeError) else f"{type(error).__name__}: {error}"
    return printable(reason)[:1000]


async def _stream(answer: Outgoing) -> AsyncIterator[bytes]:
    for chunk in in_chunks(answer):
        yield chunk
