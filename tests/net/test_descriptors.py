"""A client that reconnects repeatedly has no more open sockets than one that connected once."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

import pytest

from fedge.net.grpc_client import connect
from fedge.net.transport import LinkError, Peer, StreamLimits
from net.echo import ALICE, HOST, PAYLOAD, EchoService, connected, in_loop, read_all, serving

NUM_TIMES = 4
PATIENCE_S = 20.0


class StallingService(EchoService):
    """Sends payloads that never end."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()

    async def fetch(self, peer: Peer, token: str) -> AsyncIterator[bytes]:
        while True:
            yield PAYLOAD[:100]
            self.begun.set()
            await asyncio.sleep(0.01)

    async def upload(self, peer: Peer, token: str, chunks: AsyncIterator[bytes]) -> bytes:
        self.begun.set()
        await read_all(chunks)
        return b"ok"


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Connections must not stay open until Python happens to collect cycles."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def num_sockets() -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found


async def until_sockets(most: int) -> None:
    end = asyncio.get_running_loop().time() + PATIENCE_S
    while (found := num_sockets()) > most:
        assert asyncio.get_running_loop().time() < end, f"expected at most {most} sockets, got {found}"
        await asyncio.sleep(0.02)


async def unfinished() -> AsyncIterator[bytes]:
    yield PAYLOAD[:100]
    await asyncio.Event().wait()


@pytest.mark.parametrize("state", ["closed", "connecting", "idle", "fetching", "uploading", "closing", "failed"])
@in_loop
async def test_closed_session_leaves_no_socket(state: str) -> None:
    service = StallingService()
    kept: list[BaseException] = []

    async def live(port: int, joined: asyncio.Event) -> None:
        session = await connect(HOST, port, ALICE)
        try:
            joined.set()
            if state == "idle":
                await session.receive()
            elif state == "fetching":
                await read_all(session.fetch("task.1"))
            elif state == "uploading":
                await session.upload("task.2", unfinished())
            elif state == "failed":
                await read_all(session.fetch("no token"))
        except LinkError as error:
            kept.append(error)
        finally:
            await session.close()

    async def connect_and_disconnect(port: int) -> None:
        service.begun.clear()
        joined = asyncio.Event()
        work = asyncio.create_task(live(port, joined))
        if state == "connecting":
            await asyncio.sleep(0)
        elif state in ("closing", "idle"):
            await joined.wait()
        elif state in ("fetching", "uploading"):
            await service.begun.wait()
        if state not in ("closed", "failed"):
            work.cancel()
        await asyncio.wait([work])

    async with serving(service, limits=StreamLimits(100, 100, 100)) as server:
        async with connected(server):
            pass
        with without_garbage_collection():
            before = num_sockets()
            for _ in range(NUM_TIMES):
                await connect_and_disconnect(server.port)
            assert len(kept) == (NUM_TIMES if state == "failed" else 0)
            await until_sockets(before)
