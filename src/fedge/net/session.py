"""One client's session at the server: an outbox with one writer, and a rate limit on messages."""

from __future__ import annotations

import asyncio

from fedge.net.protocol import FromClient, FromServer, Offer, Refused, encode, read_client
from fedge.net.rates import Rate, TokenBucket
from fedge.net.transport import ControlStream, LinkError, Peer, RefusalError

MAX_WAITING = 256
"""Limit of messages that wait for a client to read them."""
MESSAGES = Rate(20.0, 200.0)
"""Rate limit of a client's messages."""
PER_OFFER = 4.0
"""Additional messages that a client may send per offer, since it does not control the pace of rounds."""


class Session:
    """The control stream of one client."""

    def __init__(self, peer: Peer, stream: ControlStream) -> None:
        self.peer = peer
        self.name = ""  # once it has introduced itself
        self.number: int | None = None  # once it has joined
        self.farewell: str | None = None  # why it left, if known
        self._stream = stream
        self._outbox: asyncio.Queue[FromServer] = asyncio.Queue(MAX_WAITING)
        self._writer = asyncio.create_task(self._write())
        self._allowance = TokenBucket(MESSAGES)

    def send(self, message: FromServer) -> None:
        """Queue a message; a client that does not read is disconnected."""
        if isinstance(message, Offer):
            self._allowance.refill(PER_OFFER)
        try:
            self._outbox.put_nowait(message)
        except asyncio.QueueFull:
            self.cut()

    async def receive(self, timeout_s: float) -> FromClient | None:
        """Return the next message; None once the client has closed the stream.

        Raises LinkError if the stream broke or nothing arrived for `timeout_s`, StreamError for a malformed message,
        RefusalError if messages arrive too fast.
        """
        try:
            async with asyncio.timeout(timeout_s):
                data = await self._stream.receive()
        except TimeoutError:
            raise LinkError(f"no message for {timeout_s:g} s") from None
        if data is None:
            return None
        if not self._allowance.take():
            raise RefusalError(f"expected at most {MESSAGES.per_s:g} messages per second; try again later")
        return read_client(data)

    async def close(self) -> None:
        """Send queued messages, for at most 5 s, and end the stream."""
        try:
            async with asyncio.timeout(5.0):
                await self._outbox.join()
        except TimeoutError:
            pass
        self.cut()

    def dismiss(self, reason: str) -> None:
        """Send a final refusal, and close the stream without waiting."""
        self.send(Refused(reason[:1000]))
        self._closing = asyncio.create_task(self.close())

    def cut(self) -> None:
        """End the stream at once."""
        self._writer.cancel()
        self._cutting = asyncio.create_task(self._stream.close())  # a reference keeps the task alive

    async def _write(self) -> None:
        while True:
            message = await self._outbox.get()
            try:
                await self._stream.send(encode(message))
            except LinkError:
                return  # the receiving task notices the broken link too
            finally:
                self._outbox.task_done()
