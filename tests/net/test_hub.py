"""The hub alone, with queues as sessions instead of a network."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import Raw

from fedge.core.message import NoMeta, Outgoing
from fedge.core.net_options import NetOptions
from fedge.net.admission import Terms
from fedge.net.assignment import Assignment
from fedge.net.closing import Rules
from fedge.net.collection import AnswerCollection
from fedge.net.hub import Hub
from fedge.net.protocol import (
    FINAL,
    INITIAL,
    PROTOCOL,
    Facts,
    Finished,
    Goodbye,
    Grant,
    Hello,
    Ready,
    encode,
    read_server,
)
from fedge.net.registry import Registry
from fedge.net.spool import Spool, Upload
from fedge.net.transport import Peer, RefusalError
from fedge.net.world import Named
from net.echo import in_chunks, in_loop

FACTS = Facts((2,), 3, "classes", 5)


class QueueStream:
    """A control stream whose other end is the test."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def receive(self) -> bytes | None:
        return await self.said.get()

    async def send(self, data: bytes) -> None:
        self.heard.put_nowait(data)

    async def close(self) -> None:
        self.said.put_nowait(None)


class Quiet:
    """A log in memory."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def append(self, event: str, **fields: object) -> None:
        self.events.append((event, fields))


class Client:
    """One session with a hub."""

    def __init__(self, hub: Hub, name: str, certified: str | None = None) -> None:
        self._stream = QueueStream()
        self.name, self.peer = name, Peer(certified or name, name, "here")
        self.ended = asyncio.create_task(hub.session(self.peer, self._stream))

    async def ask(self, message: Hello | Ready | Finished) -> Any:
        self._stream.said.put_nowait(encode(message))
        return await self.hear()

    async def hear(self) -> Any:
        return read_server(await self._stream.heard.get())

    def say(self, message: Goodbye) -> None:
        self._stream.said.put_nowait(encode(message))

    async def greet(self) -> Any:
        return await self.ask(Hello(PROTOCOL, self.name))

    async def join(self) -> Any:
        return await self.ask(Ready({}, FACTS))

    async def leave(self) -> None:
        await self._stream.close()
        await self.ended


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[set[str]], Hub]]:
    registry = Registry.open(tmp_path / "registry.sqlite")

    def made(revoked: set[str]) -> Hub:
        initial = Outgoing(NoMeta(), {"x": torch.ones(4)})
        terms = Terms(
            "run", Raw(b"\xc0"), initial, {}, FACTS.shape, FACTS.num_outputs, FACTS.task, None, revoked.__contains__
        )
        return Hub(terms, NetOptions(), registry, Quiet(), Spool(tmp_path / "spool"))

    yield made
    registry.close()


@in_loop
async def test_a_revoked_client_gets_no_payload(make: Callable[[set[str]], Hub]) -> None:
    """Any certificate of the CA gives access to the payload streams, which need no session."""
    hub = make({"bob"})
    await hub.finish(Outgoing(NoMeta(), {"x": torch.ones(4)}), lambda client: Named(), 0.0)
    for token in (INITIAL, FINAL):
        assert [chunk async for chunk in hub.fetch(Peer("alice", "alice", "here"), token)]
        with pytest.raises(RefusalError, match="certificate of 'bob' is revoked"):
            assert not [chunk async for chunk in hub.fetch(Peer("bob", "bob", "here"), token)]
    with pytest.raises(RefusalError, match="certificate of 'bob' is revoked"):
        await hub.upload(Peer("bob", "bob", "here"), "w1-0-1-0-00", in_chunks(b"data"))


@in_loop
async def test_a_broken_session_does_not_release_the_number_of_the_next(make: Callable[[set[str]], Hub]) -> None:
    hub = make(set())
    broken, alice = Client(hub, "alice"), Client(hub, "alice")
    await broken.greet()
    assert (await alice.greet()).number == 0
    await broken.leave()
    bob = Client(hub, "bob")
    assert (await bob.greet()).number == 1
    await bob.join()
    await alice.join()
    assert hub.connected() == [0, 1]
    for client in (alice, bob):
        await client.leave()


@in_loop
async def test_refused_name_does_not_release_another_clients_number(make: Callable[[set[str]], Hub]) -> None:
    hub = make(set())
    alice = Client(hub, "alice")
    assert (await alice.greet()).number == 0
    mallory = Client(hub, "alice", certified="mallory")
    assert "its certificate is for 'mallory'" in (await mallory.greet()).reason
    await mallory.leave()
    bob = Client(hub, "bob")
    assert (await bob.greet()).number == 1
    for client in (alice, bob):
        await client.leave()


@in_loop
async def test_answers_are_examined_one_at_a_time(make: Callable[[set[str]], Hub]) -> None:
    """Each may be as large as the model, and is read completely."""
    hub, met = make(set()), []
    together = threading.Barrier(2)

    def examine(client: int, upload: Upload) -> None:
        try:
            together.wait(0.5)
            met.append(client)
        except threading.BrokenBarrierError:
            pass

    clients = [Client(hub, name) for name in ("alice", "bob")]
    for client in clients:
        await client.greet()
        await client.join()
    payload = Outgoing(NoMeta(), {"x": torch.ones(4)})
    assignment = Assignment("work", 1, 0, 1, payload, [0, 1], 2, lambda client: Named(), 100, examine)
    conducting = asyncio.create_task(hub.conduct(assignment, AnswerCollection, Rules(1.0, 60.0, 60.0, 60.0)))

    async def answer(client: Client) -> Any:
        offer = await client.hear()
        assert [chunk async for chunk in hub.fetch(client.peer, offer.task)]
        assert isinstance(await client.ask(Finished(offer.task, 4)), Grant)
        return read_server(await hub.upload(client.peer, offer.task, in_chunks(b"data"))).verdict

    assert await asyncio.gather(*map(answer, clients)) == ["received", "received"]
    assert sorted((await conducting).uploads) == [0, 1]
    assert not met
    for client in clients:
        await client.leave()


@in_loop
async def test_reason_of_a_failed_build_is_reported(make: Callable[[set[str]], Hub]) -> None:
    """Clients may be hostile: their reasons are truncated and made safe to print."""
    hub = make(set())
    for number in range(30):
        client = Client(hub, f"c{number}")
        await client.greet()
        client.say(Goodbye("no file\x1b[2J" + 980 * "x"))
        await client.leave()
    assert list(hub.problems) == [f"c{number}" for number in range(10, 30)]
    assert hub.problems["c29"].startswith("the client cannot take part: no file\\u001b[2Jxxx")
    assert {len(reason) for reason in hub.problems.values()} == {300}
    again = Client(hub, "c29")
    await again.greet()
    await again.join()
    assert "c29" not in hub.problems
    await again.leave()


@in_loop
async def test_goodbye_without_a_reason_is_logged(make: Callable[[set[str]], Hub]) -> None:
    hub = make(set())
    alice = Client(hub, "alice")
    await alice.greet()
    await alice.join()
    alice.say(Goodbye(""))
    await alice.leave()
    log: Any = hub._log
    assert [fields["reason"] for event, fields in log.events if event == "leave"] == [
        "the client said goodbye without a reason"
    ]
