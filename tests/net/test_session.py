"""The rate limit on a client's messages in its session."""

from __future__ import annotations

import asyncio

import pytest

from fedge.net.protocol import Accept, Beat, Offer, encode
from fedge.net.session import MESSAGES, Session
from fedge.net.transport import Peer, RefusalError
from net.echo import in_loop


class EndlessStream:
    """A client that repeats the same message, and reads everything."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def receive(self) -> bytes | None:
        return self._data

    async def send(self, data: bytes) -> None: ...

    async def close(self) -> None: ...


@in_loop
async def test_a_client_that_answers_fast_rounds_is_not_refused() -> None:
    """Two messages per offer are not a flood, however many offers arrive."""
    session = Session(Peer("alice", "alice", "here"), EndlessStream(encode(Accept("w1"))))
    for round in range(int(MESSAGES.burst) * 3):
        session.send(Offer("w1", "work", round, 0, 1, 10, 0, 1.0, None, None))
        for _ in range(2):
            await session.receive(1.0)
        await asyncio.sleep(0)  # the offer is sent
    session.cut()


@in_loop
async def test_a_client_that_floods_is_refused() -> None:
    session = Session(Peer("mallory", "mallory", "here"), EndlessStream(encode(Beat())))

    async def listen() -> None:
        for _ in range(100 * int(MESSAGES.burst)):
            await session.receive(1.0)

    with pytest.raises(RefusalError, match="expected at most 20 messages per second"):
        await listen()
    session.cut()
