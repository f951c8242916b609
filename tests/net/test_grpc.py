"""The transport over real sockets on loopback, with mutual TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import pytest

from fedge.core.errors import NetworkError
from fedge.net.grpc_client import GrpcSession, connect
from fedge.net.grpc_server import RunningServer, serve
from fedge.net.protocol import CHUNK_BYTES
from fedge.net.transport import ControlStream, Credentials, DeniedError, LinkError, Peer, RefusalError, StreamLimits
from net.certificates import Authority

PATIENCE_S = 60.0  # what has not happened by then never will
AUTHORITY = Authority()
SERVER = AUTHORITY.server()
ALICE = AUTHORITY.issue("alice")
HOST = "127.0.0.1"
PAYLOAD = bytes(range(256)) * 20_000  # 5 MB


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop; one that hangs fails."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE_S))

    return run


async def in_chunks(data: bytes, size: int = CHUNK_BYTES) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def all_of(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


class EchoService:
    """Answers each message with itself, and keeps what happened."""

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
            self.uploads[token] = await all_of(chunks)
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
    server: RunningServer, credentials: Credentials | None = ALICE, **options: Any
) -> AsyncIterator[GrpcSession]:
    session = await connect(HOST, server.port, credentials, **options)
    try:
        yield session
    finally:
        await session.close()


@pytest.mark.parametrize("secure", [True, False])
@in_loop
async def test_messages_and_payloads_pass(secure: bool) -> None:
    service = EchoService()
    async with serving(service, SERVER if secure else None) as server:
        async with connected(server, ALICE if secure else None) as session:
            for message in (b"one", b"x" * (1 << 20), b"\0"):
                await session.send(message)
                assert await session.receive() == message
            assert await all_of(session.fetch("task.1")) == PAYLOAD
            name = b"alice" if secure else b"None"
            assert await session.upload("task.2", in_chunks(PAYLOAD)) == b"%d bytes of %s" % (len(PAYLOAD), name)
            assert service.uploads["task.2"] == PAYLOAD
        assert {await service.ends.get(), await service.ends.get()} == {"fetched", "closed"}


@in_loop
async def test_the_certificate_names_the_peer() -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    service = EchoService()
    async with serving(service) as server, connected(server) as session:
        await session.send(b"hello")
        await session.receive()
        (peer,) = service.peers
        assert peer.name == "alice"
        assert peer.fingerprint == x509.load_pem_x509_certificate(ALICE.certificate).fingerprint(SHA256()).hex()
        assert peer.expires_s is not None
        assert 0.9 * 86_400 < peer.expires_s <= 86_400
        assert peer.address.startswith("127.0.0.1:")


@in_loop
async def test_a_refusal_arrives_with_its_reason() -> None:
    service = EchoService()
    async with serving(service) as server, connected(server) as session:
        with pytest.raises(DeniedError, match=r"task\.9 is not for alice"):
            await all_of(session.fetch("task.9"))
        with pytest.raises(DeniedError, match="not now"):
            await session.upload("refused", in_chunks(PAYLOAD))
        await session.send(b"refuse: b\xc3\xa4d")
        with pytest.raises(DeniedError, match="refuse: bäd"):
            await session.receive()
        with pytest.raises(LinkError):
            await session.send(b"more")
        with pytest.raises(LinkError):
            await all_of(session.fetch("task.1"))


@in_loop
async def test_a_defect_of_the_server_is_no_denial(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(EchoService()) as server, connected(server) as session:
        await session.send(b"fail")
        with pytest.raises(LinkError, match="server failed") as caught:
            await session.receive()
        assert not isinstance(caught.value, DeniedError)
        assert "a defect" in caplog.text


@in_loop
async def test_the_server_may_close_a_session() -> None:
    service = EchoService()
    async with serving(service) as server, connected(server) as session:
        await session.send(b"close")
        assert await session.receive() == b"closing"
        assert await session.receive() is None
        assert await service.ends.get() == "closed here"


@in_loop
async def test_an_answer_may_come_before_the_end_of_an_upload() -> None:
    async with serving(EchoService()) as server, connected(server) as session:
        for _ in range(20):
            assert await session.upload("late", in_chunks(PAYLOAD, 1000)) == b"too late"


@in_loop
async def test_an_upload_that_is_given_up_never_looks_complete() -> None:
    service = EchoService()

    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ValueError("held")

    async def endless() -> AsyncIterator[bytes]:
        yield b"half"
        await asyncio.Event().wait()

    async with serving(service) as server, connected(server) as session:
        with pytest.raises(ValueError, match="held"):
            await session.upload("task.1", broken())
        assert await service.ends.get() == "upload: the client was cut off"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await session.upload("task.2", endless())
        assert await service.ends.get() == "upload: the client was cut off"
        assert service.uploads == {}
        await session.send(b"still here")
        assert await session.receive() == b"still here"


@in_loop
async def test_a_fetch_that_is_given_up_ends_at_the_server() -> None:
    service = EchoService()
    async with serving(service) as server, connected(server) as session:
        chunks = session.fetch("task.1")
        async for _ in chunks:
            break
        await chunks.aclose()  # type: ignore[attr-defined]
        assert await service.ends.get() == "fetch broke"


@in_loop
async def test_a_cancelled_caller_loses_no_message() -> None:
    async with serving(EchoService()) as server, connected(server) as session:
        for number in range(20):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.005):
                    await session.receive()
            await session.send(b"%d" % number)
            assert await session.receive() == b"%d" % number


@in_loop
async def test_several_may_send_at_once() -> None:
    async with serving(EchoService()) as server, connected(server) as session:
        messages = [b"%d" % number * 1000 for number in range(200)]
        sending = asyncio.gather(*(session.send(message) for message in messages))
        assert [await session.receive() for _ in messages] == messages
        await sending


@in_loop
async def test_a_client_that_vanishes_is_noticed() -> None:
    service = EchoService()
    async with serving(service) as server:
        session = await connect(HOST, server.port, ALICE)
        await session.send(b"hello")
        await session.receive()
        session._call.cancel()
        assert await service.ends.get() == "the client was cut off"
        await session.close()


@in_loop
async def test_a_server_that_stops_is_noticed() -> None:
    service = EchoService()
    server = await serve(service, HOST, 0, SERVER)
    async with connected(server) as session:
        await session.send(b"hello")
        await session.receive()
        await server.stop()
        await server.stop()
        with pytest.raises(LinkError):
            await session.receive()
        assert await service.ends.get() == "the client was cut off"


@in_loop
async def test_too_many_streams_of_one_peer_are_refused() -> None:
    service = EchoService()
    async with serving(service) as server, connected(server), connected(server):
        with pytest.raises(LinkError, match="alice has 2 streams open for session") as caught:
            await connect(HOST, server.port, ALICE)
        assert not isinstance(caught.value, DeniedError)
        async with connected(server, AUTHORITY.issue("bob")) as other:
            await other.send(b"hello")
            assert await other.receive() == b"hello"


@in_loop
async def test_a_port_in_use_is_named() -> None:
    async with serving(EchoService()) as server:
        with pytest.raises(NetworkError, match=rf"127\.0\.0\.1:{server.port}: Address already in use; .*--listen"):
            await serve(EchoService(), HOST, server.port, SERVER)


@in_loop
async def test_an_unreachable_server_is_a_link_error() -> None:
    server = await serve(EchoService(), HOST, 0, SERVER)
    await server.stop()
    with pytest.raises(LinkError, match=rf"127\.0\.0\.1:{server.port}") as caught:
        await connect(HOST, server.port, ALICE)
    assert not isinstance(caught.value, DeniedError)
