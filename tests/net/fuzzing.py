"""Clients that send mutants in every phase of a session, and honest ones that take part in the rounds beside them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import count
from typing import NamedTuple

from fedge.core import message
from fedge.core.layout import Tree
from fedge.core.message import WorkAnswer
from fedge.net.protocol import (
    Accept,
    Beat,
    Decline,
    Done,
    Failed,
    Finished,
    FromClient,
    FromServer,
    Goodbye,
    Grant,
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
from fedge.net.transport import DeniedError, LinkError
from net import mutants
from net.fake_client import Built, FakeClient

BEAT_S = 2.0


class Outcome(NamedTuple):
    """What the server did with an input, and the words that it had for it."""

    kind: str  # accepted, answered, refused, cut, denied, failed, or a verdict on an upload
    reason: str = ""


class Campaign:
    """Counts the inputs, up to a number, and what became of them."""

    def __init__(self, port: int, built: Built, num_inputs: int, seed: int) -> None:
        self.port, self.built, self._num_inputs, self._seed = port, built, num_inputs, seed
        self.sent: Counter[str] = Counter()
        self.outcomes: list[tuple[str, Outcome]] = []
        self.tokens: dict[int, str] = {}  # of the present tasks, by client
        self.started, self.over = asyncio.Event(), asyncio.Event()

    def draw(self, worker: str) -> random.Random:
        return random.Random(f"{self._seed} {worker}")

    def note(self, kind: str, outcome: Outcome) -> None:
        self.sent[kind] += 1
        self.outcomes.append((kind, outcome))

    @property
    def complete(self) -> bool:
        return self.sent.total() >= self._num_inputs

    def reasons(self, *kinds: str) -> list[str]:
        return [outcome.reason for _, outcome in self.outcomes if outcome.kind in kinds]


class Honest(FakeClient):
    """Takes part in all rounds, with updates that depend on nothing but its number and the round."""

    async def take_part(self, before_answer: Callable[[Offer], Awaitable[None]]) -> None:
        async with self:
            await self.join()
            while not isinstance(found := await self.hear(), Done):
                if isinstance(found, Offer):
                    await self._take(found, before_answer(found))
            await self.leave()

    async def _take(self, offer: Offer, ready: Awaitable[None]) -> None:
        await self.say(Accept(offer.task))
        waiting = asyncio.ensure_future(ready)
        while not (await asyncio.wait({waiting}, timeout=BEAT_S))[0]:
            await self.say(Beat(offer.task, "working"))
        waiting.result()

        def learn(meta: WorkAnswer, tree: Tree) -> bytes:
            return message.pack(meta, {**tree, "y": tree["y"] + (self.number + 1) / (7 + offer.round)})

        settled = await self.answer(offer, learn)
        assert settled.verdict == "received", settled


class SessionOverError(Exception):
    """The server has ended the session."""


class Fuzzer(FakeClient):
    """Joins, and sends mutants before, in and after each task. It ends every task, so that rounds go on."""

    def __init__(self, campaign: Campaign, number: int) -> None:
        super().__init__(campaign.port, number, campaign.built)
        self.campaign, self.rng = campaign, campaign.draw(self.name)
        self.offer: Offer | None = None
        self._done = False
        self._markers = count()

    async def run(self) -> None:
        await self._enter()
        try:
            while not self._done:
                try:
                    while self.offer is None and not self._done:
                        self._take_in(await self.hear())
                    if self.offer is not None:
                        await self.campaign.started.wait()
                        await self._spoil(self.offer)
                except SessionOverError:
                    await self._enter_again()
            await self.say(Goodbye("over"))
        finally:
            await self.stream.close()

    async def _enter(self) -> None:
        await self.open()
        await self.say(self.hello())
        await self.expect(Welcome)
        await self.say(self.ready())
        await self.expect(Joined)

    async def _enter_again(self) -> None:
        """A task that is still on is offered again."""
        await self.stream.close()
        self.offer = None
        await self._enter()

    def _take_in(self, found: FromServer) -> None:
        if isinstance(found, Offer):
            self.offer = found
            self.campaign.tokens[self.number] = found.task
        elif isinstance(found, Withdraw) and self.offer is not None and found.task == self.offer.task:
            self.offer = None
        elif isinstance(found, Done):
            self._done = True

    async def probe(self, kind: str, data: bytes) -> None:
        """Send bytes, and find out what became of them: afterwards the server answers a marker, if it still listens."""
        marker, answers = f"marker-{next(self._markers)}", []
        try:
            await self.stream.send(data)
            await self.say(Accept(marker))
            while not isinstance(found := await self.hear(), Withdraw) or found.task != marker:
                if isinstance(found, Refused):
                    self.campaign.note(kind, Outcome("refused", found.reason))
                    raise SessionOverError
                self._take_in(found)
                answers.append(type(found).__name__ + getattr(found, "reason", ""))
        except (LinkError, AssertionError) as error:
            self.campaign.note(kind, Outcome("cut", str(error)))
            raise SessionOverError from None
        self.campaign.note(kind, Outcome("answered" if answers else "accepted", " ".join(answers)))

    async def _talk(self, phase: str, task: str) -> None:
        rng = self.rng
        for _ in range(rng.randrange(3)):
            message = mutants.legal(rng, task, self._foreign())
            await self.probe(f"message {phase}", encode(message) * rng.choice([1, 1, 1, 2]))
        if rng.random() < 0.4:
            samples: list[FromClient] = [Accept(task), Beat(task), Finished(task, 9), Decline("x", "no"), self.ready()]
            await self.probe(f"bytes {phase}", mutants.control(rng, [*samples, Failed("x", ""), self.hello()]))

    def _foreign(self) -> list[str]:
        return [token for number, token in self.campaign.tokens.items() if number != self.number] or ["x"]

    async def _spoil(self, offer: Offer) -> None:
        """Send mutants in each state of a task. The last one is an upload that the gate rejects."""
        await self._talk("offered", offer.task)
        try:
            meta, tree = await self.work(offer)
        except DeniedError as error:  # the task has ended: a mutant was valid after all
            self.campaign.note("fetch", Outcome("denied", str(error)))
            self.offer = None
            return
        await self._talk("working", offer.task)
        if self.rng.random() < 0.3:
            await self._upload("upload without a grant", offer.task, mutants.payload(self.rng, meta, tree))
        for _ in range(4):
            if self.offer is None or self.offer.task != offer.task or await self._upload_granted(offer, meta, tree):
                break
        else:
            await self.say(Failed(offer.task, "enough"))
        if self.offer is not None and self.offer.task == offer.task:
            self.offer = None
        await self._talk("over", offer.task)

    async def _upload_granted(self, offer: Offer, meta: WorkAnswer, tree: Tree) -> bool:
        """Upload a mutant; whether the task is over."""
        data = mutants.payload(self.rng, meta, tree)
        lie = self.rng.choice([0, 0, 0, 0, 1, -1, 1 << 19, 1 << 45])
        try:
            await self.say(Finished(offer.task, max(0, len(data) + lie), self.rng.random() < 0.5))
            while not isinstance(found := await self.hear(), Grant):
                if isinstance(found, Refused):
                    raise SessionOverError
                self._take_in(found)
                if self.offer is None or self._done:
                    return True
                if isinstance(found, Offer):
                    return False
        except (LinkError, AssertionError):
            raise SessionOverError from None
        match self.rng.randrange(6):
            case 0:
                await self._break_off(offer.task, data)
                return False
            case 1:
                each = [self._upload("interleaved upload", offer.task, data) for _ in range(2)]
                verdicts = await asyncio.gather(*each)
            case _:
                verdicts = [await self._upload("upload", offer.task, data)]
        return any(verdict in ("rejected", "late") for verdict in verdicts)

    async def _upload(self, kind: str, token: str, data: bytes) -> str:
        size = self.rng.choice([1 << 20, 1 << 20, 5000, 64 if len(data) < 5000 else 9000])
        outcome = await upload(self, token, data, size)
        self.campaign.note(kind, outcome)
        return outcome.kind

    async def _break_off(self, token: str, data: bytes) -> None:
        async def some() -> AsyncIterator[bytes]:
            yield data[: len(data) // 2] or b"x"
            raise ConnectionError

        try:
            await self.stream.upload(token, some())
        except ConnectionError:
            self.campaign.note("broken upload", Outcome("cut", "by the client"))


class Stranger(FakeClient):
    """Never joins: it sends mutants where a hello or a ready is expected, to payloads, and to the port."""

    def __init__(self, campaign: Campaign, worker: int, number: int) -> None:
        super().__init__(campaign.port, number, campaign.built, name=f"stranger{worker}")
        self.campaign, self.rng = campaign, campaign.draw(self.name)

    async def run(self) -> None:
        await self.campaign.started.wait()
        acts = [self._greet, self._get_ready, self._fetch, self._upload, self._connect, self._connect]
        while not self.campaign.complete:
            await self.rng.choice(acts)()

    async def _greet(self) -> None:
        await self.open()
        good = self.hello()
        data = encode(mutants.greeting(self.rng, good)) if self.rng.random() < 0.3 else b""
        await self._say_and_hear("before hello", data or mutants.control(self.rng, [good, good, self.ready(), Beat()]))
        await self.stream.close()

    async def _get_ready(self) -> None:
        if not await self._become_welcome():
            return
        other = Ready(self.built.digests | {"another": "section"}, self.built.facts[0])  # which is never accepted
        data = encode(mutants.readiness(self.rng, self.ready())) if self.rng.random() < 0.3 else b""
        await self._say_and_hear("after welcome", data or mutants.control(self.rng, [other, other, self.hello()]))
        await self.stream.close()

    async def _become_welcome(self) -> bool:
        await self.open()
        await self.say(self.hello())
        return isinstance(await self.hear(), Welcome)

    async def _say_and_hear(self, kind: str, data: bytes) -> None:
        try:
            await self.stream.send(data)
            found = await self.hear()
        except (LinkError, AssertionError) as error:
            outcome = Outcome("cut", str(error))
        else:
            assert isinstance(found, Refused | Welcome), found
            outcome = Outcome("refused", found.reason) if isinstance(found, Refused) else Outcome("accepted")
        self.campaign.note(kind, outcome)

    async def _fetch(self) -> None:
        """Several of them in one session."""
        assert await self._become_welcome()
        for _ in range(5):
            try:
                pieces = [piece async for piece in self.stream.fetch(self._token())]
                outcome = Outcome("accepted", f"{len(pieces)} pieces")
            except LinkError as error:
                outcome = Outcome("denied" if isinstance(error, DeniedError) else "failed", str(error))
            self.campaign.note("fetch", outcome)
        await self.stream.close()

    async def _upload(self) -> None:
        assert await self._become_welcome()
        for _ in range(5):
            data = self.rng.randbytes(self.rng.choice([1, 1000, 100_000]))
            self.campaign.note("upload of a stranger", await upload(self, self._token(), data, 50_000))
        await self.stream.close()

    def _token(self) -> str:
        return mutants.token(self.rng, list(self.campaign.tokens.values()))

    async def _connect(self) -> None:
        """Send garbage over some connections at once; the server closes them, or answers until the end is seen."""
        await asyncio.gather(*(self._send_raw(mutants.connection(self.rng)) for _ in range(8)))

    async def _send_raw(self, data: bytes) -> None:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.campaign.port)
            try:
                writer.write(data)
                writer.write_eof()
                answer = await reader.read()
            finally:
                writer.transport.abort()
            outcome = Outcome("closed", f"{len(answer)} bytes")
        except OSError as error:
            outcome = Outcome("closed", str(error))
        self.campaign.note("connection", outcome)


async def upload(client: FakeClient, token: str, data: bytes, size: int) -> Outcome:
    """Upload in chunks of a size; return the server's verdict."""

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(data), size):
            yield data[start : start + size]

    try:
        settled = read_server(await client.stream.upload(token, chunks()))
    except LinkError as error:
        return Outcome("denied" if isinstance(error, DeniedError) else "failed", str(error))
    assert isinstance(settled, Settled)
    assert settled.verdict != "received", settled
    return Outcome(settled.verdict, settled.reason)


async def attack(
    campaign: Campaign, fuzzers: Sequence[int], num_strangers: int, honest: Awaitable[None], spare: int
) -> None:
    """Let all of them work beside the honest clients, up to the end of the run."""

    async def strangers() -> None:
        await asyncio.gather(*(Stranger(campaign, worker, spare).run() for worker in range(num_strangers)))
        campaign.over.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(strangers())
        for number in fuzzers:
            group.create_task(Fuzzer(campaign, number).run())
        group.create_task(_awaited(honest))


async def _awaited(work: Awaitable[None]) -> None:
    await work
