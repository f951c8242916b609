"""Shared by both ends of a gRPC connection: names, options, and a stream that survives cancelled callers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine
from typing import Any, TypeVar

from fedge.core.errors import FedgeError
from fedge.net.protocol import CHUNK_BYTES, MAX_CONTROL_BYTES
from fedge.net.transport import LinkError

try:
    import grpc as grpc  # imported only here, so that its absence is reported
except ImportError:
    raise FedgeError("networked runs need grpcio, which is not installed; pip install 'fedge[net]'") from None

T = TypeVar("T")
SERVICE = "fedge.v1"
TOKEN_KEY = "fedge-token"
SESSION_KEY = "fedge-session"  # in the initial metadata of a session that the server accepted
END = b""
"""The last message of a client's stream. Without it, a server could not tell a client that finished from one that
disconnected: gRPC reports the same end of stream for both."""
MAX_MESSAGE_BYTES = max(CHUNK_BYTES, MAX_CONTROL_BYTES) * 2
WRITE_S = 60.0
"""Time limit for writing one control message; a peer that reads nothing for this long is disconnected."""
OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.http2.lookahead_bytes", 1 << 20),
    ("grpc.http2.bdp_probe", 0),  # it would enlarge the windows, and so the memory per stream
    ("grpc.max_metadata_size", 16 << 10),
)


class MessageStream:
    """Messages of one gRPC stream.

    Cancelling a waiting caller loses no message and does not end the call, as it would in gRPC. Writes are serialised,
    since two at once would end the call as well.

    gRPC keeps a connection open while anything refers to one of its calls. A stream therefore must not refer to itself,
    and drops its call once it is over: otherwise the connection would stay until Python collects cycles.
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

    def mark_broken(self, reason: str) -> None:
        """Mark the stream as broken: later calls raise LinkError. The first reason is kept."""
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
        """Yield messages until the end; raise LinkError if none arrives for `stall_s`."""
        while True:
            try:
                async with asyncio.timeout(stall_s):
                    chunk = await self.receive()
            except TimeoutError:
                self.mark_broken(f"nothing received for {stall_s:g} s")
                raise LinkError(self._broken) from None
            if chunk is None:
                return
            yield chunk

    async def _read_one(self) -> bytes | None:
        # no await between the check and the read: gRPC frees the call of a broken stream
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
            self.mark_broken(f"the other side read nothing for {timeout_s:g} s")
            raise LinkError(self._broken) from None

    async def _guarded(self, work: Awaitable[Any]) -> Any:
        try:
            return await work
        except LinkError as error:
            self.mark_broken(str(error))
            raise
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            self.mark_broken(f"the stream ended: {error}"[:200])
            raise LinkError(self._broken) from None


def ping_after(silence_s: int, patience_s: int) -> tuple[tuple[str, int], ...]:
    """Return options to ping after `silence_s` without data, and to disconnect after `patience_s` without reply."""
    return (
        ("grpc.keepalive_time_ms", silence_s * 1000),
        ("grpc.keepalive_timeout_ms", patience_s * 1000),
        ("grpc.http2.ping_timeout_ms", patience_s * 1000),
    )


def in_background(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task whose exception is dropped, without a warning, if nobody awaits it."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
