"""One client's session at the server: an outbox with one writer, and a limit on how much it may say."""

from __future__ import annotations

import asyncio

from fedge.net.protocol import FromClient, FromServer, Offer, Refused, encode, read_client
from fedge.net.rates import Rate, TokenBucket
from fedge.net.transport import ControlStream, LinkError, Peer, RefusalError

MAX_WAITING = 256
"""Messages that may wait for a client to read them."""
MESSAGES = Rate(20.0, 200.0)
"""How many messages a client may send."""
PER_OFFER = 4.0
"""Messages that it may send beside these for each offer: how fast rounds follow one another is not its choice."""


class Session:
    """The control stream of one client, from its first message on."""

    def __init__(self, peer: Peer, stream: ControlStream) -> None:
        self.peer = peer
        self.name = ""  # once it has introduced itself
        self.number: int | None = None  # once it has joined
        self.farewell: str | None = None  # why it has left, where that is known
        self._stream = stream
        self._outbox: asyncio.Queue[FromServer] = asyncio.Queue(MAX_WAITING)
        self._writer = asyncio.create_task(self._write())
        self._allowance = TokenBucket(MESSAGES)

    def send(self, message: FromServer) -> None:
        """Send a message, after those before it; a client that does not read is cut off."""
        if isinstance(message, Offer):
            self._allowance.refill(PER_OFFER)
        try:
            self._outbox.put_nowait(message)
        except asyncio.QueueFull:
            self.cut()

    async def receive(self, timeout_s: float) -> FromClient | None:
        """Return the next message; None once the client has closed the stream.

        Raises LinkError if the stream broke or was silent so long, StreamError for what is no message, RefusalError if
        there are too many messages.
        """
        try:
            async with asyncio.timeout(timeout_s):
                data = await self._stream.receive()
        except TimeoutError:
            raise LinkError(f"nothing was heard for {timeout_s:g} s") from None
        if data is None:
            return None
        if not self._allowance.take():
            raise RefusalError(f"expected at most {MESSAGES.per_s:g} messages a second; try again later")
        return read_client(data)

    async def close(self) -> None:
        """Send what waits, as far as the client reads it soon, and end the stream."""
        try:
            async with asyncio.timeout(5.0):
                await self._outbox.join()
        except TimeoutError:
            pass
        self.cut()

    def dismiss(self, reason: str) -> None:
        """Tell the client that a person has to act, and end the stream as `close` does, without waiting for it."""
        self.send(Refused(reason[:1000]))
        self._closing = asyncio.create_task(self.close())

    def cut(self) -> None:
        """End the stream without waiting."""
        self._writer.cancel()
        self._cutting = asyncio.create_task(self._stream.close())  # kept, so that it is not collected

    async def _write(self) -> None:
        while True:
            message = await self._outbox.get()
            try:
                await self._stream.send(encode(message))
            except LinkError:
                return  # whoever receives finds out as well
            finally:
                self._outbox.task_done()
