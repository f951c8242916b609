"""A `Service` on a port, by gRPC: mutual TLS, limits, and reasons for what is refused."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar
from urllib.parse import unquote

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID

from fedge.core.errors import NetworkError
from fedge.net.grpc_stream import END, OPTIONS, SERVICE, SESSION_KEY, TOKEN_KEY, MessageStream, in_background
from fedge.net.transport import Credentials, LinkError, Peer, RefusalError, Service, StreamLimits

_log = logging.getLogger(__name__)
T = TypeVar("T")

_SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *OPTIONS,
    ("grpc.so_reuseport", 0),  # else two servers would share a port without notice
    (
        "grpc.max_concurrent_streams",
        32,
    ),  # of a connection; more than `StreamLimits`, which give a reason
    ("grpc.server_handshake_timeout_ms", 20_000),
    ("grpc.max_connection_idle_ms", 120_000),  # without any stream
    # Clients beat every 30 s, so only the dead are pinged. What a client's own pings may cost is limited as well.
    ("grpc.keepalive_time_ms", 120_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)
_LONGEST_REASON = 1000  # characters


class RunningServer:
    """A server that answers, until it is stopped."""

    def __init__(self, server: Any, port: int, handlers: _Handlers) -> None:
        self.port = port
        self._server, self._handlers = server, handlers

    async def stop(self, grace_s: float = 0.0) -> None:
        """Take no more calls, wait so long for those under way, then cut them off; idempotent."""
        await self._server.stop(grace_s)
        await self._handlers.finish()


async def serve(
    service: Service, host: str, port: int, credentials: Credentials | None, limits: StreamLimits | None = None
) -> RunningServer:
    """Serve on a port (0: any free one). Without credentials anyone who reaches the port is served.

    Raises NetworkError if the port cannot be had, or the credentials cannot be used.
    """
    limits = limits or StreamLimits()
    handlers = _Handlers(service, limits)
    options = (*_SERVER_OPTIONS, ("grpc.max_allowed_incoming_connections", limits.connections))
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((handlers.generic(),))
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if credentials is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, _tls(credentials))
    except RuntimeError:
        raise NetworkError(f"cannot listen on {address}: {_why_not(host, port)}") from None
    await server.start()
    return RunningServer(server, bound, handlers)


def _tls(credentials: Credentials) -> Any:
    pair = (credentials.key, credentials.certificate)
    return grpc.ssl_server_credentials([pair], root_certificates=credentials.ca, require_client_auth=True)


def _why_not(host: str, port: int) -> str:
    """Say why a port cannot be had: gRPC does not."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        return f"{error.strerror or error}; choose another with --listen HOST:PORT"
    return "the server's key or certificate cannot be used; renew it with `fedge pki init`"


class _ServerStream(MessageStream):
    """A server's end of a stream."""

    def __init__(self, context: Any) -> None:
        super().__init__(self._next, context.write)
        self._context = context
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def _next(self) -> bytes | None:
        data = await self._context.read()
        if data is grpc.aio.EOF:
            raise LinkError("the client was cut off")
        return None if data == END else data

    async def close(self) -> None:
        """End the stream, after the messages that are being sent."""
        async with self._turn:
            self.snap("the stream was closed here")
            if not self.closed.done():
                self.closed.set_result(None)


class _Handlers:
    """What gRPC calls."""

    def __init__(self, service: Service, limits: StreamLimits) -> None:
        self._service, self._limits = service, limits
        self._most = {"session": limits.sessions, "fetch": limits.fetches, "upload": limits.uploads}
        self._open: Counter[tuple[str, str]] = Counter()
        self._tasks: set[asyncio.Task[Any]] = set()

    def generic(self) -> Any:
        handlers = {
            "Session": grpc.stream_stream_rpc_method_handler(self.session),
            "Fetch": grpc.unary_stream_rpc_method_handler(self.fetch),
            # the answer may come before the end of the payload, which a stream_unary method would lose
            "Upload": grpc.stream_stream_rpc_method_handler(self.upload),
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def finish(self) -> None:
        """Wait for whatever still works for a peer that has gone."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def session(self, _requests: object, context: Any) -> None:
        peer, stream = await self._peer(context), _ServerStream(context)
        await self._check("session", peer, context)
        await context.send_initial_metadata(((SESSION_KEY, "1"),))
        await self._attend("session", peer, context, stream, self._service.session(peer, stream))

    async def fetch(self, request: bytes, context: Any) -> None:
        peer, stream = await self._peer(context), _ServerStream(context)
        await self._check("fetch", peer, context)
        token = await self._token(request, context)
        await self._attend("fetch", peer, context, stream, self._send_payload(peer, token, stream))

    async def upload(self, _requests: object, context: Any) -> None:
        peer, stream = await self._peer(context), _ServerStream(context)
        await self._check("upload", peer, context)
        token = await self._token(dict(context.invocation_metadata()).get(TOKEN_KEY, b""), context)
        work = self._service.upload(peer, token, stream.chunks(self._limits.stall_s))
        answer = await self._attend("upload", peer, context, stream, work)
        await context.write(answer)

    async def _send_payload(self, peer: Peer, token: str, stream: _ServerStream) -> None:
        chunks = self._service.fetch(peer, token)
        try:
            async for chunk in chunks:
                await stream.send(chunk, self._limits.stall_s)
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    async def _attend(
        self, kind: str, peer: Peer, context: Any, stream: _ServerStream, work: Coroutine[Any, Any, T]
    ) -> T | None:
        """Let the service work in a task that gRPC cannot cancel: it gets a LinkError where it reads or writes."""
        key = (kind, peer.name or peer.address)
        self._open[key] += 1
        task = in_background(work)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(key, done))
        try:
            waiting: set[asyncio.Future[Any]] = {task, stream.closed}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # must be raised again: grpcio leaks if a cancelled call is answered (43360)
            stream.snap("the client was cut off")
            raise
        if not task.done():
            return None
        try:
            return task.result()
        except RefusalError as error:
            reason, code = str(error), grpc.StatusCode.PERMISSION_DENIED
        except LinkError as error:
            reason, code = str(error), grpc.StatusCode.ABORTED
        except Exception:  # logged when the task ended
            reason, code = "the server failed at this; its log has the error", grpc.StatusCode.INTERNAL
        finally:
            stream.snap("the stream has ended")
        await context.abort(code, reason[:_LONGEST_REASON])
        return None  # abort raises

    def _ended(self, key: tuple[str, str], task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._open[key] -= 1
        if not self._open[key]:
            del self._open[key]
        error = None if task.cancelled() else task.exception()
        if error and not isinstance(error, RefusalError | LinkError):
            _log.error("%s of %s failed", *key, exc_info=error)

    async def _check(self, kind: str, peer: Peer, context: Any) -> None:
        who = peer.name or peer.address
        if self._open[kind, who] >= self._most[kind]:
            reason = f"{who} has {self._most[kind]} streams open for {kind}, and may have no more; try again later"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, reason)

    async def _token(self, data: bytes | str, context: Any) -> str:
        text = data.decode("ascii", "replace") if isinstance(data, bytes) else data
        if not 0 < len(text) <= 100 or not text.isascii():
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "expected a token of 1 to 100 ASCII characters")
        return text

    async def _peer(self, context: Any) -> Peer:
        address = unquote(context.peer()).partition(":")[2]
        (pem,) = context.auth_context().get("x509_pem_cert", [None])
        if pem is None:
            return Peer(None, None, address)
        certificate = x509.load_pem_x509_certificate(pem)
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if len(names) != 1:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"expected one common name, got {len(names)}")
        expires_s = certificate.not_valid_after_utc.timestamp() - time.time()
        return Peer(str(names[0].value), certificate.fingerprint(SHA256()).hex(), address, expires_s)
