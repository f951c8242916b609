"""Payloads to and from 200 simultaneous clients over TLS on loopback: speed, and resources of the server.

`python -m benchmarks.net_transport [CLIENTS] [MB]`. The processes are forked before grpc is imported.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

from tests.net.certificates import Authority

from benchmarks.process_use import memory, peak_memory, processor_s
from fedge.net.protocol import CHUNK_BYTES
from fedge.net.transport import ControlStream, Credentials, Peer

NUM_CLIENTS, NUM_MB, NUM_PROCESSES = 200, 25, 2
GRANTS = (4, NUM_CLIENTS)
"""Simultaneous uploads: as many as the runtime's buffer allows, and unlimited."""
GOALS = {"down_gb_s": 0.5, "peak_mb": 300}
_FORK = get_context("fork")
_PATIENCE_S = 600.0


def run(num_clients: int = NUM_CLIENTS, num_mb: int = NUM_MB) -> dict[str, Any]:
    """Return by number of grants GB/s down and up, and the server's peak memory in MB."""
    found = {f"{grants} grants": _measure(num_clients, num_mb * 1_000_000, grants) for grants in GRANTS}
    return {"clients": num_clients, "mb": num_mb, "goals": GOALS} | found


def _measure(num_clients: int, num_bytes: int, grants: int) -> dict[str, float]:
    authority = Authority()
    barrier = _FORK.Barrier(NUM_PROCESSES + 1)
    near, far = _FORK.Pipe()
    server = _FORK.Process(target=_serve, args=(far, authority.server(), num_bytes, grants), daemon=True)
    server.start()
    port, idle_bytes = near.recv()
    names = [f"client-{number}" for number in range(num_clients)]
    own = [[authority.issue(name) for name in names[part::NUM_PROCESSES]] for part in range(NUM_PROCESSES)]
    clients = [_FORK.Process(target=_join, args=(port, part, num_bytes, barrier), daemon=True) for part in own]
    for each in clients:
        each.start()
    found: dict[str, float] = {}
    assert server.pid is not None
    barrier.wait(_PATIENCE_S)
    for way in ("down", "up"):
        with peak_memory(server.pid) as peak:
            began, before_s = time.perf_counter(), processor_s(server.pid)
            barrier.wait(_PATIENCE_S)
            barrier.wait(_PATIENCE_S)
            seconds, used_s = time.perf_counter() - began, processor_s(server.pid) - before_s
        found[f"{way}_gb_s"] = num_clients * num_bytes / seconds / 1e9
        found[f"{way}_server_cpu_s"] = used_s
        for kind, value in peak.items():
            found[f"{way}_{kind}_mb"] = value / 1e6
            found[f"{way}_{kind}_beyond_idle_mb"] = (value - idle_bytes[kind]) / 1e6
    for each in clients:
        each.join(_PATIENCE_S)
        assert each.exitcode == 0, "a client failed"
    near.send(None)
    server.join(_PATIENCE_S)
    return found


class LoadService:
    """A service that sends every client the same payload, counts uploaded bytes and limits simultaneous uploads."""

    def __init__(self, num_bytes: int, grants: int) -> None:
        self._payload = memoryview(b"\1" * num_bytes)  # written to, so that its pages are resident
        self._grants = asyncio.Semaphore(grants)

    async def session(self, peer: Peer, stream: ControlStream) -> None:
        while await stream.receive() is not None:
            await self._grants.acquire()
            await stream.send(b"grant")

    async def fetch(self, peer: Peer, token: str) -> AsyncIterator[bytes]:
        for start in range(0, len(self._payload), CHUNK_BYTES):
            yield bytes(self._payload[start : start + CHUNK_BYTES])

    async def upload(self, peer: Peer, token: str, chunks: AsyncIterator[bytes]) -> bytes:
        num_bytes = 0
        async for chunk in chunks:
            num_bytes += len(chunk)
        self._grants.release()
        return str(num_bytes).encode()


def _serve(pipe: Connection, credentials: Credentials, num_bytes: int, grants: int) -> None:
    from fedge.net.grpc_server import serve  # after the fork

    async def work() -> None:
        server = await serve(LoadService(num_bytes, grants), "127.0.0.1", 0, credentials)
        pipe.send((server.port, memory()))
        await asyncio.to_thread(pipe.recv)
        await server.stop()

    asyncio.run(work())


def _join(port: int, credentials: list[Credentials], num_bytes: int, barrier: Barrier) -> None:
    from fedge.net.grpc_client import GrpcSession, connect  # after the fork

    piece = bytes(CHUNK_BYTES)

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, num_bytes, CHUNK_BYTES):
            yield piece[: num_bytes - start]

    async def down(session: GrpcSession) -> None:
        got = 0
        async for chunk in session.fetch("task"):
            got += len(chunk)
        assert got == num_bytes

    async def up(session: GrpcSession) -> None:
        await session.send(b"finished")
        assert await session.receive() == b"grant"
        assert int(await session.upload("task", chunks())) == num_bytes

    async def work() -> None:
        sessions = [await connect("127.0.0.1", port, each) for each in credentials]
        barrier.wait(_PATIENCE_S)
        for phase in (down, up):
            barrier.wait(_PATIENCE_S)
            await asyncio.gather(*map(phase, sessions))
            barrier.wait(_PATIENCE_S)
        for session in sessions:
            await session.close()

    asyncio.run(work())


if __name__ == "__main__":
    print(json.dumps(run(*map(int, sys.argv[1:])), indent=2))
