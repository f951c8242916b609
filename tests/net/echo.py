"""A service for tests of the transport, and context managers that serve it and connect to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import pytest

from fedge.net.grpc_client import GrpcSession, connect
from fedge.net.grpc_server import RunningServer, serve
from fedge.net.protocol import CHUNK_BYTES
from fedge.net.transport import ControlStream, Credentials, LinkError, Peer, RefusalError, StreamLimits
from net.certificates import Authority
from net.proxy import Proxy

PATIENCE_S = 60.0  # deadline of every wait
AUTHORITY = Authority()
SERVER = AUTHORITY.server()
ALICE = AUTHORITY.issue("alice")
HOST = "127.0.0.1"
PAYLOAD = bytes(range(256)) * 20_000  # 5 MB


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop, with a deadline."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE_S))

    return run


async def in_chunks(data: bytes, size: int = CHUNK_BYTES) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def read_all(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


class EchoService:
    """Echoes each message, and records what happened."""

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self.uploads: dict[str, bytes] = {}
        self.ends: asyncio.Queue[str] = asyncio.Queue()

    async def session(self, peer: Peer, stream: ControlStream) -> None:
        self.peers.append(peer)
        try:
            while (data := await stream.receive()) is not None:
                if data.startswith(b"refuse"):
                    raise RefusalError(data.decode())
                if data == b"fail":
                    raise ValueError("a defect")
                if data == b"close":
                    await stream.send(b"closing")
                    await stream.close()
                    await stream.close()
                    with pytest.raises(LinkError):
                        await stream.receive()
                    self.ends.put_nowait("closed here")
                    return
                await stream.send(data)
            self.ends.put_nowait("closed")
        except LinkError as error:
            self.ends.put_nowait(str(error))

    async def fetch(self, peer: Peer, token: str) -> AsyncIterator[bytes]:
        if token != "task.1":
            raise RefusalError(f"{token} is not for {peer.name}")
        try:
            async for chunk in in_chunks(PAYLOAD):
                yield chunk
            self.ends.put_nowait("fetched")
        except GeneratorExit:
            self.ends.put_nowait("fetch broke")
            raise

    async def upload(self, peer: Peer, token: str, chunks: AsyncIterator[bytes]) -> bytes:
        if token == "refused":
            raise RefusalError("not now")
        if token == "late":
            async for _ in chunks:
                return b"too late"
        try:
            self.uploads[token] = await read_all(chunks)
        except LinkError as error:
            self.ends.put_nowait(f"upload: {error}")
            raise
        return f"{len(self.uploads[token])} bytes of {peer.name}".encode()


@asynccontextmanager
async def serving(
    service: EchoService, credentials: Credentials | None = SERVER, limits: StreamLimits | None = None
) -> AsyncIterator[RunningServer]:
    server = await serve(service, HOST, 0, credentials, limits)
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def connected(
    server: RunningServer | Proxy, credentials: Credentials | None = ALICE, **options: Any
) -> AsyncIterator[GrpcSession]:
    session = await connect(HOST, server.port, credentials, **options)
    try:
        yield session
    finally:
        await session.close()
