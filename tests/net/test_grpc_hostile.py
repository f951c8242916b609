"""Peers that send garbage, announce gigabytes, or do not read: a server limits their cost and keeps serving."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from grpc._cython import cygrpc

from fedge.net.grpc_client import connect
from fedge.net.grpc_server import RunningServer
from fedge.net.grpc_stream import MAX_MESSAGE_BYTES
from fedge.net.rates import Rate
from fedge.net.transport import ControlStream, Credentials, DeniedError, LinkError, Peer, StreamLimits
from net.echo import (
    ALICE,
    AUTHORITY,
    HOST,
    PAYLOAD,
    SERVER,
    EchoService,
    connected,
    in_chunks,
    in_loop,
    read_all,
    serving,
)
from net.http2 import DATA, END_STREAM, PREFACE, call, frame, message

pytestmark = pytest.mark.full


def tls(credentials: Credentials | None, folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=AUTHORITY.pem.decode())
    context.set_alpn_protocols(["h2"])
    if credentials:
        path = folder / "own.pem"
        path.write_bytes(credentials.key + credentials.certificate)
        context.load_cert_chain(path)
    return context


async def sent(port: int, data: bytes, context: ssl.SSLContext | None = None, until: bytes | None = None) -> bytes:
    """Return the server's answer to some bytes until it disconnects; with `until`, up to this text."""
    reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
    got = b""
    try:
        writer.write(data)
        await writer.drain()
        async with asyncio.timeout(None if until else 0.3):
            while (until is None or until not in got) and (piece := await reader.read(1 << 16)):
                got += piece
    except (OSError, TimeoutError):
        pass
    writer.transport.abort()
    return got


async def assert_serves(server: RunningServer, credentials: Credentials | None = ALICE) -> None:
    async with connected(server, credentials) as session:
        await session.send(b"hello")
        assert await session.receive() == b"hello"
        assert await read_all(session.fetch("task.1")) == PAYLOAD


def memory_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@in_loop
async def test_oversized_message_ends_only_its_stream() -> None:
    service = EchoService()
    async with serving(service) as server, connected(server) as session:
        creds = grpc.ssl_channel_credentials(ALICE.ca, ALICE.key, ALICE.certificate)
        async with grpc.aio.secure_channel(f"{HOST}:{server.port}", creds) as channel:
            raw = channel.stream_stream("/fedge.v1/Session")()
            await raw.write(bytes(MAX_MESSAGE_BYTES + 1))
            assert await raw.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await service.ends.get() == "the client disconnected"
        await session.send(b"hello")
        assert await session.receive() == b"hello"


@pytest.mark.parametrize("method", ["Session", "Upload", "Fetch"])
@in_loop
async def test_an_announced_gigabyte_is_refused_at_once(method: str, tmp_path: Path) -> None:
    service = EchoService()
    async with serving(service) as server:
        await assert_serves(server)
        before = memory_bytes()
        context = tls(ALICE, tmp_path)
        for size in (MAX_MESSAGE_BYTES + 1, 1 << 31, (1 << 32) - 1):
            data, words = call(method) + frame(DATA, 0, 1, message(b"x" * 1000, size)), b"larger than max"
            assert words in await sent(server.port, data, context, until=words)
        assert memory_bytes() - before < 64 << 20
        await assert_serves(server)


@in_loop
async def test_no_stream_without_a_certificate(tmp_path: Path) -> None:
    service = EchoService()
    async with serving(service) as server:
        assert await sent(server.port, call("Session"), tls(None, tmp_path)) == b""
        assert await sent(server.port, call("Session")) == b""  # without TLS
        accepted = b"fedge-session"
        assert service.peers == []
        assert accepted in await sent(server.port, call("Session"), tls(ALICE, tmp_path), until=accepted)
        assert await service.ends.get() == "the client disconnected"
        assert [peer.name for peer in service.peers] == ["alice"]


@pytest.mark.full
@pytest.mark.parametrize("secure", [True, False])
@in_loop
async def test_garbage_on_the_port(secure: bool, tmp_path: Path) -> None:
    own = ALICE if secure else None
    async with serving(EchoService(), SERVER if secure else None) as server:
        await assert_serves(server, own)
        draw = random.Random(1)
        context = tls(ALICE, tmp_path) if secure else None
        good = call("Session", "https" if secure else "http")
        good += frame(DATA, 0, 1, message(b"hello")) + frame(DATA, END_STREAM, 1, message(b""))
        num_answered = 0
        for _ in range(20):
            tries = [mutated(good, draw) for _ in range(16)]
            answers = await asyncio.gather(
                *(sent(server.port, each, context) for each in tries),
                *(sent(server.port, draw.randbytes(draw.randrange(1, 4000))) for _ in range(4)),
            )
            num_answered += sum(map(bool, answers))
        assert num_answered > 20  # so mutants do reach gRPC
        await assert_serves(server, own)


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Return bytes with a few changes, truncated, or doubled."""
    work = bytearray(data)
    for _ in range(draw.randrange(1, 6)):
        where = draw.randrange(len(PREFACE), len(work))
        kind = draw.randrange(4)
        if kind == 0:
            work[where] = draw.randrange(256)
        elif kind == 1:
            work[where:where] = draw.randbytes(draw.randrange(1, 20))
        elif kind == 2:
            del work[where : where + draw.randrange(1, 20)]
        else:
            work += work[where:]
        if len(work) <= len(PREFACE):
            break
    return bytes(work)


@in_loop
async def test_silent_connections_are_harmless() -> None:
    async with serving(EchoService()) as server:
        silent = [await asyncio.open_connection(HOST, server.port) for _ in range(300)]
        await assert_serves(server)
        for _, writer in silent:
            writer.transport.abort()
        descriptors = Path("/proc/self/fd")
        while len(os.listdir(descriptors)) > 200:
            await asyncio.sleep(0.01)


@in_loop
async def test_too_many_connections_are_closed() -> None:
    async with serving(EchoService(), limits=StreamLimits(connections=5)) as server, connected(server) as session:
        links = [await asyncio.open_connection(HOST, server.port) for _ in range(20)]
        waiting = {asyncio.ensure_future(reader.read(1)) for reader, _ in links}
        closed: set[asyncio.Task[bytes]] = set()
        while len(closed) < 16:  # one of the five is the session's
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            closed |= done
        await session.send(b"hello")
        assert await session.receive() == b"hello"
        for task in waiting:
            task.cancel()
        for _, writer in links:
            writer.transport.abort()


class LongPayloads(EchoService):
    """Serves a payload larger than any buffer, and counts the chunks that were sent."""

    num_chunks = 0

    async def fetch(self, peer: Peer, token: str) -> AsyncIterator[bytes]:
        try:
            for _ in range(1000):
                self.num_chunks += 1
                yield bytes(1 << 20)
        finally:
            self.ends.put_nowait("fetch ended")

    async def session(self, peer: Peer, stream: ControlStream) -> None:
        if peer.name == "flooded":
            try:
                while True:
                    self.num_chunks += 1
                    await stream.send(bytes(1 << 20), 0.5)  # type: ignore[call-arg]
            except LinkError as error:
                self.ends.put_nowait(str(error))
        else:
            await super().session(peer, stream)


@in_loop
async def test_stalled_reader_is_dropped_and_uses_little_memory() -> None:
    service = LongPayloads()
    async with serving(service, limits=StreamLimits(stall_s=0.5)) as server, connected(server) as session:
        chunks = session.fetch("task.1")
        await anext(chunks)
        assert await service.ends.get() == "fetch ended"
        assert service.num_chunks < 20
        await session.send(b"hello")
        assert await session.receive() == b"hello"
        with pytest.raises(LinkError, match=r"read nothing for 0\.5 s"):
            await read_all(chunks)


@in_loop
async def test_client_that_reads_no_messages_is_dropped() -> None:
    service = LongPayloads()
    async with serving(service) as server, connected(server, AUTHORITY.issue("flooded")):
        assert await service.ends.get() == "the other side read nothing for 0.5 s"
        assert service.num_chunks < 20


@in_loop
async def test_stalled_writer_is_dropped() -> None:
    service = EchoService()

    async def half() -> AsyncIterator[bytes]:
        yield b"half"
        await asyncio.Event().wait()

    async with serving(service, limits=StreamLimits(stall_s=0.3)) as server, connected(server) as session:
        upload = asyncio.ensure_future(session.upload("task.1", half()))
        assert await service.ends.get() == "upload: nothing received for 0.3 s"
        upload.cancel()
        assert await session.upload("task.2", in_chunks(PAYLOAD)) == b"%d bytes of alice" % len(PAYLOAD)


@in_loop
async def test_streams_of_one_peer_are_limited_by_kind() -> None:
    service = LongPayloads()
    async with serving(service) as server, connected(server) as session:
        fetches = [session.fetch("task.1") for _ in range(2)]
        for chunks in fetches:
            await anext(chunks)
        with pytest.raises(LinkError, match="alice already has 2 open streams for fetch"):
            await read_all(session.fetch("task.1"))
        async with connected(server, AUTHORITY.issue("bob")) as other:
            await anext(other.fetch("task.1"))
        for chunks in fetches:
            await chunks.aclose()  # type: ignore[attr-defined]
        while True:  # places are free once the server has noticed
            try:
                await anext(session.fetch("task.1"))
                break
            except LinkError:
                await asyncio.sleep(0.01)


@in_loop
async def test_calls_of_one_peer_are_limited_in_rate() -> None:
    """Limits are per kind and per peer; the client treats a refusal as a reason to retry."""
    seldom = Rate(1 / 1000, 3)
    limits = StreamLimits(session_rate=seldom, fetch_rate=seldom, upload_rate=seldom)
    expected = r"alice opens streams for {} too fast: expected at most 0.001 per second, 3 at once; try again later"
    async with serving(EchoService(), limits=limits) as server, connected(server) as session:
        for _ in range(3):
            assert await read_all(session.fetch("task.1")) == PAYLOAD
            assert await session.upload("task.2", in_chunks(b"x" * 10)) == b"10 bytes of alice"
        with pytest.raises(LinkError, match=expected.format("fetch")) as fetch:
            await read_all(session.fetch("task.1"))
        # gRPC sometimes loses the status of a stream that is refused while the client writes to it
        with pytest.raises(LinkError, match=f"{expected.format('upload')}|Internal error from Core") as upload:
            await session.upload("task.2", in_chunks(b"x" * 10))
        for _ in range(2):
            async with connected(server):
                pass
        with pytest.raises(LinkError, match=expected.format("session")) as another:
            await connect(HOST, server.port, ALICE)
        for caught in (fetch, upload, another):
            assert not isinstance(caught.value, DeniedError)
        await session.send(b"still here")
        assert await session.receive() == b"still here"
        async with connected(server, AUTHORITY.issue("bob")) as other:
            assert await read_all(other.fetch("task.1")) == PAYLOAD


BAD_METHOD = "Sess\x81ion"  # not UTF-8, which ends the loop of a grpcio server


@in_loop
async def test_method_name_that_is_not_utf8_does_not_stop_the_server(tmp_path: Path) -> None:
    async with serving(EchoService()) as server, connected(server) as session:
        await sent(server.port, call(BAD_METHOD), tls(ALICE, tmp_path))
        await session.send(b"hello")
        assert await session.receive() == b"hello"
        await assert_serves(server)


@in_loop
async def test_server_restarts_after_its_loop_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedge.net.grpc_server._KnownMethods", cygrpc.AioServer)
    monkeypatch.setattr("fedge.net.grpc_server._WATCH_S", 0.05)
    service = EchoService()
    async with serving(service) as server, connected(server) as session:
        await session.send(b"hello")
        assert await session.receive() == b"hello"
        await sent(server.port, call(BAD_METHOD), tls(ALICE, tmp_path))
        with pytest.raises(LinkError):
            await session.receive()
        assert await service.ends.get() == "the client disconnected"
        while True:
            try:
                return await assert_serves(server)
            except LinkError:
                await asyncio.sleep(0.01)
