"""Peers with valid certificates that send mutants to a live server, and the outcome of each mutant."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, NamedTuple, Self

import grpc
import msgspec

from fedge.core import message
from fedge.core.layout import Tree
from fedge.core.message import EvaluationAnswer, EvaluationRequest, WorkAnswer, WorkRequest
from fedge.core.question import write_sums
from fedge.net.grpc_stream import END, OPTIONS, SERVICE, TOKEN_KEY
from fedge.net.protocol import (
    PROTOCOL,
    Accept,
    FromClient,
    FromServer,
    Grant,
    Hello,
    Joined,
    Offer,
    Ready,
    Refused,
    Settled,
    Welcome,
    Withdraw,
    encode,
    read_server,
)
from fedge.net.transport import Credentials
from net.echo import HOST
from net.mutants import Known, Stream

LOST = "Internal error from Core"
"""gRPC's message at the client if a status arrives during a write: the server's reason is lost."""
ANSWER_S = 60.0  # deadline for the answer to a mutant
_OPTIONS = (*OPTIONS, ("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1))


class Fate(NamedTuple):
    """The outcome of a mutant."""

    outcome: str
    reason: str = ""

    @property
    def explained(self) -> bool:
        """Whether the answer itself shows the outcome, or gives a reason."""
        return self.reason not in ("", LOST) or self.outcome in ("taken", "received", "served")


class Ended(NamedTuple):
    """The end of a call."""

    code: grpc.StatusCode
    details: str

    @property
    def fate(self) -> Fate:
        return Fate("left" if self.code is grpc.StatusCode.OK else self.code.name.lower(), self.details)


class Tally:
    """Hands out the indices of mutants, and records their outcomes."""

    def __init__(self, seed: int, quotas: dict[str, int]) -> None:
        self.seed = seed
        self.fates: Counter[tuple[str, str]] = Counter()  # by kind and outcome
        self.reasons: dict[tuple[str, str], str] = {}  # one example each
        self.left: Counter[str] = Counter()  # by name: sessions that a mutant ended cleanly
        self.joined: Counter[str] = Counter()  # by name: sessions of peers that interrupt tasks
        self.lost: list[tuple[str, int]] = []  # those, by name and order, whose reason gRPC lost
        self.unexplained: list[str] = []
        self._quotas, self._next = quotas, Counter[str]()

    def draw(self, kind: str) -> int | None:
        """Return the index of the next mutant of a kind; None if enough were sent."""
        if self._next[kind] >= self._quotas[kind]:
            return None
        self._next[kind] += 1
        return self._next[kind] - 1

    def had_enough(self, *kinds: str) -> bool:
        return all(self._next[kind] >= self._quotas[kind] for kind in kinds)

    def note(self, kind: str, index: int, fate: Fate, label: str = "") -> None:
        """Record the outcome of a mutant, under a more precise label than its kind if there is one."""
        key = label or kind, fate.outcome
        self.fates[key] += 1
        self.reasons.setdefault(key, fate.reason)
        if not fate.explained and fate.outcome != "left":  # for those that left, the log must have a reason
            self.unexplained.append(f"{kind} {index} of seed {self.seed}: {fate}")

    def extend(self, quotas: dict[str, int]) -> None:
        self._quotas = quotas

    @property
    def num_sent(self) -> int:
        """The number of mutants drawn."""
        return self._next.total()

    @property
    def num_fates(self) -> int:
        return self.fates.total()


class HangError(AssertionError):
    """The server did not answer."""


@asynccontextmanager
async def watch(what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(ANSWER_S):
            yield
    except TimeoutError:
        raise HangError(f"no answer within {ANSWER_S:g} s to {what}") from None


@contextmanager
def until_the_end() -> Iterator[None]:
    """Stop at the end of a call, however gRPC reports it; a cancellation of this task still propagates."""
    try:
        yield
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise


class Conversation:
    """One session over a raw call: sends anything, and receives everything."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.ended: Ended | None = None
        self.offer: Offer | None = None  # the latest, until it is taken
        self._heard: asyncio.Queue[FromServer | Ended] = asyncio.Queue()
        self._reader = asyncio.create_task(self._read())
        self._probes = 0

    async def _read(self) -> None:
        with until_the_end():
            while (data := await self.call.read()) is not grpc.aio.EOF:
                self._heard.put_nowait(read_server(data))
        self._heard.put_nowait(Ended(await self.call.code(), await self.call.details() or ""))

    async def send(self, *data: bytes) -> None:
        """Send messages until the server stops accepting them."""
        with until_the_end():
            for each in data:
                await self.call.write(each)

    async def say(self, *messages: FromClient) -> None:
        await self.send(*map(encode, messages))

    async def hear(self, *kinds: type[Any]) -> Any:
        """Return the next message of one of these kinds, or the end; other messages before it are dropped."""
        async with watch(f"a conversation that waits for {[kind.__name__ for kind in kinds]}"):
            while self.ended is None:
                found = await self._heard.get()
                self.offer = found if isinstance(found, Offer) else self.offer
                if isinstance(found, Ended):
                    self.ended = found
                elif isinstance(found, kinds):
                    return found
            return self.ended

    async def granted(self, token: str) -> Fate | None:
        """Wait for the grant of a task; return the reason if it will not come."""
        while True:
            match await self.hear(Grant, Withdraw):
                case Grant(task=task) if task == token:
                    return None
                case Withdraw(task=task, reason=reason) if task == token:
                    return Fate("withdrawn", reason)
                case Ended() as ended:
                    return ended.fate

    async def fate(self) -> Fate:
        """Return the outcome of the previous message: the server answers a probe after it, or has ended the session."""
        self._probes += 1
        probe = f"probe.{self._probes}"
        await self.say(Accept(probe))
        while True:
            match await self.hear(Withdraw, Refused):
                case Withdraw(task=task) if task == probe:
                    return Fate("taken")
                case Refused(reason=reason):
                    await self.hear()
                    return Fate("refused", reason)
                case Ended() as ended:
                    return ended.fate

    async def close(self) -> None:
        await self.send(END)
        with suppress(TimeoutError), until_the_end():
            async with asyncio.timeout(5):
                await self.call.done_writing()
                await self.call.code()
        self.call.cancel()
        await self._reader


class HostilePeer:
    """One name with its certificate, and one connection for all its calls."""

    def __init__(self, port: int, credentials: Credentials, known: Known, tokens: deque[str]) -> None:
        """`tokens` are the tasks that any peer of the campaign has seen."""
        self.known, self.tokens = known, tokens
        tls = grpc.ssl_channel_credentials(credentials.ca, credentials.key, credentials.certificate)
        self._channel = grpc.aio.secure_channel(f"{HOST}:{port}", tls, options=_OPTIONS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    def informed(self) -> Known:
        """Return what the peer currently knows."""
        return self.known._replace(tokens=tuple(self.tokens)[-6:])

    @asynccontextmanager
    async def conversation(self, patient: bool = True) -> AsyncIterator[Conversation]:
        """Open a session, and close it at the end; if patient, retry when the server's rate limit refuses it."""
        async with watch("the opening of a session"):
            call = await self._call()
            while patient and not await call.initial_metadata() and "too fast" in (await call.details() or ""):
                await asyncio.sleep(0.1)
                call = await self._call()
        found = Conversation(call)
        try:
            yield found
        finally:
            await found.close()

    async def _call(self) -> Any:
        """Open a session, and wait until the server accepts or refuses it."""
        call = self._channel.stream_stream(f"/{SERVICE}/Session")()
        await call.initial_metadata()
        return call

    def hello(self) -> Hello:
        return Hello(PROTOCOL, self.known.name, number=self.known.number)

    def ready(self) -> Ready:
        return Ready(self.known.digests, self.known.facts)

    @asynccontextmanager
    async def joined(self) -> AsyncIterator[Conversation]:
        """Open a session and join correctly."""
        async with self.conversation() as session:
            await session.say(self.hello())
            await session.hear(Welcome)
            await session.say(self.ready())
            found = await session.hear(Joined, Refused)
            assert isinstance(found, Joined), found
            yield session

    async def fetch(self, token: bytes) -> tuple[bytes, Fate]:
        """Fetch a payload; return it and the outcome."""
        call = self._channel.unary_stream(f"/{SERVICE}/Fetch")(token)
        data = b""
        async with watch(f"a fetch of {token[:100]!r}"):
            try:
                while (chunk := await call.read()) is not grpc.aio.EOF:
                    data += chunk
            except grpc.aio.AioRpcError as error:
                return data, Fate(error.code().name.lower(), error.details() or "")
            return data, Fate("served", f"{len(data)} bytes")

    async def upload(self, token: str, stream: Stream) -> Fate:
        """Upload a stream under a token, and return the verdict or the status."""
        for _ in range(20):
            fate = await self._upload(token, stream)
            if fate.reason != LOST:
                return fate  # otherwise send it again
        return fate

    async def _upload(self, token: str, stream: Stream) -> Fate:
        call = self._channel.stream_stream(f"/{SERVICE}/Upload")(metadata=((TOKEN_KEY, token),))
        reading = asyncio.create_task(_settled(call))
        with until_the_end():
            for chunk in stream.chunks:
                await call.write(chunk)
            if stream.ending in ("end", "more"):
                await call.write(END)
            if stream.ending == "more":
                await call.write(b"after the end")
            if stream.ending == "cancel":
                call.cancel()
                await reading
                return Fate("cancelled", "by the client itself")
            await call.done_writing()
        async with watch(f"an upload under {token[:100]!r}"):
            return await reading

    async def answer(self, offer: Offer) -> tuple[msgspec.Struct, Tree] | None:
        """Fetch the payload, and return an answer with the unchanged model; None if the task is over."""
        data, _ = await self.fetch(offer.task.encode())
        kind = WorkRequest if offer.kind == "work" else EvaluationRequest
        reader: message.Reader = message.Reader(kind)  # type: ignore[type-var]
        try:
            reader.feed(data)
            request, down = reader.finish()
        except message.StreamError:  # the exchange closed meanwhile
            return None
        number, size = self.known.number, self.known.facts.size
        if not isinstance(request, WorkRequest):
            return EvaluationAnswer(number), write_sums({"count": float(size), "loss": 1.0, "correct": 1.0})
        steps = request.num_steps or 0
        return WorkAnswer(number, size, steps, steps, steps, 1.0), {"y": down["x"], "stats": down["stats"]}


async def _settled(call: Any) -> Fate:
    """Return the verdict on an upload, or why the call ended."""
    with until_the_end():
        if (data := await call.read()) is not grpc.aio.EOF:
            found = read_server(data)
            assert isinstance(found, Settled), found
            await call.code()
            return Fate(found.verdict, found.reason)
    return Fate((await call.code()).name.lower(), await call.details() or "")


def table(fates: Counter[tuple[str, str]], reasons: dict[tuple[str, str], str]) -> str:
    """Return a table of outcomes by kind of mutant, each with an example of its reason."""
    return "\n".join(_rows(fates, reasons))


def _rows(fates: Counter[tuple[str, str]], reasons: dict[tuple[str, str], str]) -> Iterable[str]:
    for (kind, outcome), number in sorted(fates.items()):
        yield f"{kind:24} {outcome:20} {number:6}  {reasons[kind, outcome][:100]}"
