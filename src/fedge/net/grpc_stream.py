"""What both ends of a gRPC connection share: names, options, and a stream that survives cancelled callers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine
from typing import Any, TypeVar

from fedge.core.errors import FedgeError
from fedge.net.protocol import CHUNK_BYTES, MAX_CONTROL_BYTES
from fedge.net.transport import LinkError

try:
    import grpc as grpc  # and no other module imports it, so that its absence has words
except ImportError:
    raise FedgeError("runs over a network need grpcio, which is not installed; pip install 'fedge[net]'") from None

T = TypeVar("T")
SERVICE = "fedge.v1"
TOKEN_KEY = "fedge-token"
SESSION_KEY = "fedge-session"  # in the initial metadata of a session that the server has taken
END = b""
"""The last message of a client's stream. gRPC shows a server the same end of stream for a client that has finished and
for one that was cut off."""
MAX_MESSAGE_BYTES = max(CHUNK_BYTES, MAX_CONTROL_BYTES) * 2
WRITE_S = 60.0
"""Longest wait for room to write one control message; a peer that reads nothing for so long is given up."""
OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.http2.lookahead_bytes", 1 << 20),
    ("grpc.http2.bdp_probe", 0),  # it would enlarge the windows, and with them the memory of each stream
    ("grpc.max_metadata_size", 16 << 10),
)


class MessageStream:
    """Messages of one gRPC stream.

    A caller that is cancelled while it waits loses nothing: gRPC would end the call. Writes follow one another: two at
    once would end the call too.

    gRPC keeps a connection open as long as anything refers to one of its calls. So a stream must not refer to itself,
    and lets go of its call once it is over: else the connection would stay until Python looks for cycles.
    """

    def __init__(self) -> None:
        self._reading: asyncio.Task[bytes | None] | None = None
        self._turn = asyncio.Lock()
        self._broken: str | None = None

    async def _read(self) -> bytes | None:
        """Return the next message of the call; None after the last one."""
        raise NotImplementedError

    async def _write(self, data: bytes) -> None:
        """Write a message to the call."""
        raise NotImplementedError

    def snap(self, reason: str) -> None:
        """Let every later call raise LinkError; the first reason is kept."""
        self._broken = self._broken or reason

    async def receive(self) -> bytes | None:
        if self._reading is None:
            self._reading = in_background(self._read_one())
        data = await asyncio.shield(self._reading)
        self._reading = None
        return data

    async def send(self, data: bytes, timeout_s: float = WRITE_S) -> None:
        await asyncio.shield(in_background(self._write_one(data, timeout_s)))

    async def chunks(self, stall_s: float) -> AsyncIterator[bytes]:
        """Yield messages up to the end; a LinkError if none comes for `stall_s`."""
        while True:
            try:
                async with asyncio.timeout(stall_s):
                    chunk = await self.receive()
            except TimeoutError:
                self.snap(f"nothing came for {stall_s:g} s")
                raise LinkError(self._broken) from None
            if chunk is None:
                return
            yield chunk

    async def _read_one(self) -> bytes | None:
        # no await between the check and the read: gRPC has freed the call of a stream that broke
        if self._broken:
            raise LinkError(self._broken)
        data: bytes | None = await self._guarded(self._read())
        return data

    async def _write_one(self, data: bytes, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s), self._turn:
                if self._broken:
                    raise LinkError(self._broken)
                await self._guarded(self._write(data))
        except TimeoutError:
            self.snap(f"the other side read nothing for {timeout_s:g} s")
            raise LinkError(self._broken) from None

    async def _guarded(self, work: Awaitable[Any]) -> Any:
        try:
            return await work
        except LinkError as error:
            self.snap(str(error))
            raise
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            self.snap(f"the stream has ended: {error}"[:200])
            raise LinkError(self._broken) from None


def ping_after(silence_s: int, patience_s: int) -> tuple[tuple[str, int], ...]:
    """Return options that end a connection if nothing came for so long, and then no answer to a ping for so long."""
    return (
        ("grpc.keepalive_time_ms", silence_s * 1000),
        ("grpc.keepalive_timeout_ms", patience_s * 1000),
        ("grpc.http2.ping_timeout_ms", patience_s * 1000),
    )


def in_background(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task whose failure is no news if nobody waits for it any longer."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
