"""A client that does not train and sends whatever a test needs: well behaved, broken or hostile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from fedge.config import load
from fedge.core import message
from fedge.core.layout import Tree
from fedge.core.message import NoMeta, WorkAnswer, WorkRequest
from fedge.experiment.setup import Setup
from fedge.net.grpc_client import GrpcSession, connect
from fedge.net.plan import digests, plan_of
from fedge.net.protocol import (
    CHUNK_BYTES,
    INITIAL,
    PROTOCOL,
    Accept,
    Facts,
    Finished,
    FromClient,
    FromServer,
    Goodbye,
    Grant,
    Hello,
    Joined,
    Offer,
    Pulse,
    Ready,
    Refused,
    Settled,
    Welcome,
    Withdraw,
    encode,
    read_server,
)
from fedge.net.transport import Credentials

M = TypeVar("M")
Upload = Callable[[WorkAnswer, Tree], bytes]


class Built(NamedTuple):
    """The content of a client's `Ready`."""

    digests: dict[str, str]
    facts: list[Facts]  # of each client


def build(file: Path) -> Built:
    """Return the correct `Ready` content for the clients of an experiment."""
    config = load(file)
    setup = Setup.of(config, config.seed or 0)
    part = config.data.server_part(config.seed or 0)
    sizes = setup.data.sizes.tolist()
    facts = [Facts(tuple(part.shape), part.num_outputs, part.task, size) for size in sizes]
    return Built(digests(plan_of(config, part.plan, {}), setup.network, setup.algorithm), facts)


class FakeClient:
    """One session. Tests take each step themselves, or let `join` and `answer` take them all."""

    def __init__(
        self, port: int, number: int, built: Built, credentials: Credentials | None = None, name: str | None = None
    ) -> None:
        self.number, self.built = number, built
        self.name = name or f"c{number}"
        self.stream: GrpcSession
        self._port, self._credentials = port, credentials

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stream.close()

    async def open(self) -> None:
        self.stream = await connect("127.0.0.1", self._port, self._credentials)

    async def say(self, *messages: FromClient) -> None:
        for each in messages:
            await self.stream.send(encode(each))

    async def hear(self) -> FromServer:
        """Return the server's next message other than a heartbeat."""
        while True:
            data = await self.stream.receive()
            assert data is not None, "the server ended the session"
            if not isinstance(found := read_server(data), Pulse):
                return found

    async def expect(self, kind: type[M]) -> M:
        """Return the next message of a kind; withdrawals before it are skipped."""
        while isinstance(found := await self.hear(), Withdraw) and kind is not Withdraw:
            pass
        assert isinstance(found, kind), found
        return found

    def hello(self, protocol: int = PROTOCOL) -> Hello:
        return Hello(protocol, self.name, number=self.number)

    def ready(self) -> Ready:
        return Ready(self.built.digests, self.built.facts[self.number])

    async def join(self) -> Welcome:
        """Join correctly."""
        await self.say(self.hello())
        welcome = await self.expect(Welcome)
        await self.fetch(INITIAL, NoMeta)
        await self.say(self.ready())
        await self.expect(Joined)
        return welcome

    async def refused(self, *messages: FromClient) -> Refused:
        """Send messages of which the last is refused, and return the refusal."""
        await self.say(*messages)
        while not isinstance(found := await self.hear(), Refused):
            assert isinstance(found, Welcome | Withdraw | Joined | Offer), found
        return found

    async def fetch(self, token: str, kind: type[M]) -> tuple[M, Tree]:
        reader: message.Reader = message.Reader(kind)  # type: ignore[type-var]
        async for chunk in self.stream.fetch(token):
            reader.feed(chunk)
        return reader.finish()

    async def work(self, offer: Offer) -> tuple[WorkAnswer, Tree]:
        """Accept, fetch, and return an answer with the unchanged model."""
        await self.say(Accept(offer.task))
        request, down = await self.fetch(offer.task, WorkRequest)
        steps = request.num_steps or 0
        answer = WorkAnswer(self.number, self.built.facts[self.number].size, steps, steps, steps, 1.0)
        return answer, {"y": down["x"].clone(), "stats": down["stats"].clone()}

    async def upload(self, offer: Offer, data: bytes, announced: int | None = None) -> Settled:
        """Request a grant and upload, announcing `announced` bytes instead of the actual size."""
        await self.say(Finished(offer.task, len(data) if announced is None else announced))
        await self.expect(Grant)
        return await self.send(offer.task, data)

    async def send(self, token: str, data: bytes) -> Settled:
        """Upload, with or without a grant."""
        settled = read_server(await self.stream.upload(token, _in_chunks(data)))
        assert isinstance(settled, Settled), settled
        return settled

    async def answer(self, offer: Offer, upload: Upload = message.pack) -> Settled:
        """Carry out an offer completely; `upload` makes the bytes of the answer."""
        return await self.upload(offer, upload(*await self.work(offer)))

    async def leave(self) -> None:
        await self.say(Goodbye("the test is over"))


async def _in_chunks(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]
