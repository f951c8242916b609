"""The transport over real sockets on loopback, with mutual TLS."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from fedge.core.errors import NetworkError
from fedge.net.grpc_client import connect
from fedge.net.grpc_server import serve
from fedge.net.transport import Credentials, DeniedError, LinkError
from net.certificates import DAY, Authority
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
from net.proxy import Proxy


@pytest.mark.parametrize("secure", [True, False])
@in_loop
async def test_messages_and_payloads_pass(secure: bool) -> None:
    service = EchoService()
    async with serving(service, SERVER if secure else None) as server:
        async with connected(server, ALICE if secure else None) as session:
            for message in (b"one", b"x" * (1 << 20), b"\0"):
                await session.send(message)
                assert await session.receive() == message
            assert await read_all(session.fetch("task.1")) == PAYLOAD
            name = b"alice" if secure else b"None"
            assert await session.upload("task.2", in_chunks(PAYLOAD)) == b"%d bytes of %s" % (len(PAYLOAD), name)
            assert service.uploads["task.2"] == PAYLOAD
        assert {await service.ends.get(), await service.ends.get()} == {"fetched", "closed"}


@in_loop
async def test_peer_is_named_by_its_certificate() -> None:
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
            await read_all(session.fetch("task.9"))
        with pytest.raises(DeniedError, match="not now"):
            await session.upload("refused", in_chunks(PAYLOAD))
        await session.send(b"refuse: b\xc3\xa4d")
        with pytest.raises(DeniedError, match="refuse: bäd"):
            await session.receive()
        with pytest.raises(LinkError):
            await session.send(b"more")
        with pytest.raises(LinkError):
            await read_all(session.fetch("task.1"))


@in_loop
async def test_internal_server_error_is_not_a_denial(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(EchoService()) as server, connected(server) as session:
        await session.send(b"fail")
        with pytest.raises(LinkError, match="internal error of the server") as caught:
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
async def test_answer_may_precede_the_end_of_an_upload() -> None:
    async with serving(EchoService()) as server, connected(server) as session:
        for _ in range(20):
            assert await session.upload("late", in_chunks(PAYLOAD, 1000)) == b"too late"


@in_loop
async def test_aborted_upload_never_looks_complete() -> None:
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
        assert await service.ends.get() == "upload: the client disconnected"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await session.upload("task.2", endless())
        assert await service.ends.get() == "upload: the client disconnected"
        assert service.uploads == {}
        await session.send(b"still here")
        assert await session.receive() == b"still here"


@in_loop
async def test_aborted_fetch_ends_at_the_server() -> None:
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
async def test_concurrent_sends() -> None:
    async with serving(EchoService()) as server, connected(server) as session:
        messages = [b"%d" % number * 1000 for number in range(200)]
        sending = asyncio.gather(*(session.send(message) for message in messages))
        assert [await session.receive() for _ in messages] == messages
        await sending


@in_loop
async def test_server_notices_a_vanished_client() -> None:
    service = EchoService()
    async with serving(service) as server:
        session = await connect(HOST, server.port, ALICE)
        await session.send(b"hello")
        await session.receive()
        session._line.call.cancel()
        assert await service.ends.get() == "the client disconnected"
        await session.close()


@in_loop
async def test_client_notices_a_stopped_server() -> None:
    service = EchoService()
    server = await serve(service, HOST, 0, SERVER)
    async with connected(server) as session:
        await session.send(b"hello")
        await session.receive()
        await server.stop()
        await server.stop()
        with pytest.raises(LinkError):
            await session.receive()
        assert await service.ends.get() == "the client disconnected"


@in_loop
async def test_too_many_streams_of_one_peer_are_refused() -> None:
    service = EchoService()
    async with serving(service) as server, connected(server), connected(server):
        with pytest.raises(LinkError, match="alice already has 2 open streams for session") as caught:
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


@in_loop
async def test_payloads_survive_a_slow_proxy() -> None:
    service = EchoService()
    async with serving(service) as server, Proxy(server.port, rate=5e6) as proxy:
        async with connected(proxy) as session:
            down, answer = await asyncio.gather(
                read_all(session.fetch("task.1")), session.upload("task.2", in_chunks(PAYLOAD))
            )
            assert down == service.uploads["task.2"] == PAYLOAD
            assert answer == b"%d bytes of alice" % len(PAYLOAD)
        assert min(proxy.num_up, proxy.num_down) > len(PAYLOAD)
        assert proxy.num_connections == 3  # each payload has its own


@in_loop
async def test_both_sides_notice_a_cut_idle_connection() -> None:
    service = EchoService()
    async with serving(service) as server, Proxy(server.port, idle_s=0.2) as proxy:
        for number in range(3):
            async with connected(proxy) as session:
                await session.send(b"hello")
                assert await session.receive() == b"hello"
                with pytest.raises(LinkError) as caught:
                    await session.receive()
                assert not isinstance(caught.value, DeniedError)
                with pytest.raises(LinkError):
                    await session.upload("task.1", in_chunks(PAYLOAD))
                assert await service.ends.get() == "the client disconnected"
            assert proxy.num_cut == number + 1


@in_loop
async def test_truncated_payload_never_looks_complete() -> None:
    service = EchoService()
    async with serving(service) as server, Proxy(server.port, rate=1e6) as proxy:
        async with connected(proxy) as session:

            async def cutting() -> AsyncIterator[bytes]:
                async for chunk in in_chunks(PAYLOAD, 100_000):
                    yield chunk
                    if proxy.num_up > 300_000:
                        proxy.cut()

            with pytest.raises(LinkError):
                await session.upload("task.1", cutting())
        ends = {await service.ends.get(), await service.ends.get()}
        assert ends == {"upload: the client disconnected", "the client disconnected"}
        assert service.uploads == {}
        async with connected(proxy) as session:
            with pytest.raises(LinkError):  # noqa: PT012
                async for _ in session.fetch("task.1"):
                    proxy.cut()
        assert {await service.ends.get(), await service.ends.get()} == {"fetch broke", "the client disconnected"}


@in_loop
async def test_http_proxy_is_used_only_if_given(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(EchoService()) as server, Proxy(server.port, connect=True) as proxy:
        address = f"http://127.0.0.1:{proxy.port}"
        for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, address)
        async with connected(server) as session:
            await session.send(b"hello")
            assert await session.receive() == b"hello"
        assert proxy.num_connections == 0
        async with connected(server, proxy=address) as session:
            await session.send(b"hello")
            assert await session.receive() == b"hello"
        assert proxy.num_connections == 1
        with pytest.raises(DeniedError, match="other CA"):
            await connect(HOST, server.port, Authority("other CA").issue("alice"), proxy=address)
        assert proxy.num_connections > 1
        proxy.refusing = True
        with pytest.raises(LinkError):
            await connect(HOST, server.port, ALICE, proxy=address)


PAST, FUTURE = {"begins": -3 * DAY, "ends": -DAY}, {"begins": DAY, "ends": 3 * DAY}
OTHER = Authority("other CA")
FAILURES: dict[str, tuple[Credentials | None, Credentials | None, str]] = {
    "server expired": (
        AUTHORITY.server(**PAST),
        ALICE,
        "of 127.* expired on",
    ),
    "server too early": (AUTHORITY.server(**FUTURE), ALICE, "valid only from .* clock"),
    "server of another CA": (OTHER.server()._replace(ca=AUTHORITY.pem), ALICE, r"another CA \(other CA\).*\(test CA\)"),
    "other name": (
        AUTHORITY.server("a.org", "10.0.0.1"),
        ALICE,
        r"is not for 127\.0\.0\.1, but for a\.org, 10\.0\.0\.1",
    ),
    "client expired": (SERVER, AUTHORITY.issue("alice", **PAST), "client.* expired"),
    "client too early": (
        SERVER,
        AUTHORITY.issue("alice", **FUTURE),
        "client.* is valid only from",
    ),
    "client of another CA": (SERVER, OTHER.issue("alice", ca=AUTHORITY.pem), r"client.*another CA \(other CA\)"),
    "key of another": (SERVER, ALICE._replace(key=SERVER.key), "key does not match its certificate"),
    "no PEM": (SERVER, ALICE._replace(certificate=b"?"), "cannot read this client's key"),
    "client without TLS": (SERVER, None, "requires TLS: drop --insecure"),
    "server without TLS": (None, ALICE, "does not speak TLS"),
}


@pytest.mark.parametrize("name", FAILURES)
@in_loop
async def test_failed_handshake_is_explained(name: str) -> None:
    of_server, of_client, words = FAILURES[name]
    service = EchoService()
    async with serving(service, of_server) as server:
        with pytest.raises(DeniedError, match=words):
            await connect(HOST, server.port, of_client)
        assert service.peers == []


@in_loop
async def test_certificate_of_another_ca_is_refused() -> None:
    service = EchoService()
    async with serving(service) as server:
        alien = OTHER.issue("alice")
        both = alien._replace(ca=AUTHORITY.pem + alien.ca)  # trusts the server, and its certificate matches its key
        with pytest.raises(LinkError):
            await connect(HOST, server.port, both)
        assert service.peers == []


@pytest.mark.parametrize("field", Credentials._fields)
@in_loop
async def test_server_with_invalid_credentials_does_not_start(field: str) -> None:
    with pytest.raises(NetworkError, match="cannot be used"):
        await serve(EchoService(), HOST, 0, SERVER._replace(**{field: b"?"}))


@pytest.mark.parametrize("module", ["grpc_server", "grpc_client"])
def test_missing_extra_is_named(module: str) -> None:
    code = f"import sys; sys.modules['grpc'] = None; import fedge.net.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "FedgeError: networked runs need grpcio" in done.stderr
