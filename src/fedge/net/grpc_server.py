"""Serving a `Service` on a port, with gRPC and mutual TLS."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

from fedge.core.errors import NetworkError
from fedge.net.address import Address
from fedge.net.grpc_handlers import ServiceHandlers
from fedge.net.grpc_stream import OPTIONS, SERVICE, grpc, ping_after
from fedge.net.transport import Credentials, Service, StreamLimits

Renew = Callable[[], Credentials | None]
"""Returns new credentials; None if they have not changed."""

_log = logging.getLogger(__name__)
_WATCH_S = 1.0  # interval of checks that gRPC still serves

_SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *OPTIONS,
    ("grpc.so_reuseport", 0),  # otherwise two servers could silently share a port
    ("grpc.max_concurrent_streams", 32),  # per connection; above `StreamLimits`, which give a reason
    ("grpc.server_max_unrequested_time_in_server", 600),  # seconds; by default, calls that wait for 30 are killed
    ("grpc.server_handshake_timeout_ms", 20_000),
    ("grpc.max_connection_idle_ms", 30_000),  # connections without a stream; our clients leave none
    # Clients send heartbeats every 30 s, so only dead ones are pinged; on a very slow link a ping queues behind a
    # payload. The rate of a client's own pings is limited as well.
    *ping_after(120, 120),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)


async def serve(
    service: Service,
    host: str,
    port: int,
    credentials: Credentials | None,
    limits: StreamLimits | None = None,
    renew: Renew = lambda: None,
) -> RunningServer:
    """Serve on a port (0: any free port). Without credentials, anyone who reaches the port is served.

    `renew` is called at each new connection, in another thread; credentials that it returns are used from then on.

    Raises NetworkError if the port is not available or the credentials are invalid.
    """
    running = RunningServer(service, host, port, credentials, limits or StreamLimits(), renew)
    await running.start()
    return running


class RunningServer:
    """A running server. `port` is the port that it listens on."""

    def __init__(
        self,
        service: Service,
        host: str,
        port: int,
        credentials: Credentials | None,
        limits: StreamLimits,
        renew: Renew,
    ) -> None:
        self.port = port
        self._host, self._credentials, self._limits, self._renew = host, credentials, limits, renew
        self._handlers = ServiceHandlers(service, limits)
        self._server: Any = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to listen. Raises NetworkError as `serve` does."""
        options = (*_SERVER_OPTIONS, ("grpc.max_allowed_incoming_connections", self._limits.connections))
        server = _grpc_server(options, self._handlers.by_method())
        address = str(Address(self._host, self.port))
        try:
            if self._credentials is None:
                bound = server.add_insecure_port(address)
            else:
                bound = server.add_secure_port(address, _tls(self._credentials, self._renew))
        except RuntimeError:
            raise NetworkError(f"cannot listen on {address}: {_why_not(self._host, self.port)}") from None
        await server.start()
        self._server, self.port = server, bound
        self._watch = self._watch or asyncio.get_running_loop().create_task(self._restart_after_failures())

    async def stop(self, grace_s: float = 0.0) -> None:
        """Accept no more calls, wait `grace_s` for those in progress, then abort them; idempotent."""
        if self._watch:
            self._watch.cancel()
        await self._server.stop(grace_s)
        await self._handlers.finish()

    async def _restart_after_failures(self) -> None:
        """Restart listening whenever gRPC has silently stopped, which it does after an error in its own loop."""
        while True:
            try:
                await self._server.wait_for_termination(_WATCH_S)
            except Exception as error:
                _log.error("restarting the server after a failure of gRPC: %r", error)
                await self._server.stop(None)
                try:
                    await self.start()
                except NetworkError as problem:
                    _log.error("%s; retrying", problem)
                    await asyncio.sleep(_WATCH_S)


def _grpc_server(options: tuple[tuple[str, int], ...], handlers: dict[str, Any]) -> Any:
    server = grpc.aio.server(options=options)
    if hasattr(grpc._cython.cygrpc.AioServer, "_make_request_call_future"):
        server._server = _KnownMethods(server._loop, None, (), (), options, None)
        server.add_registered_method_handlers(SERVICE, handlers)
    else:  # another version of grpcio
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    return server


class _KnownMethods(grpc._cython.cygrpc.AioServer):  # type: ignore[misc]  # which has no types
    """A server that ignores calls of unknown methods.

    In grpcio 1.85, a single call of a method whose name is not UTF-8 stops the whole server.
    """

    def _make_request_call_future(self, method: bytes | None) -> Any:
        if method is None:  # the next call of any other method
            return asyncio.get_running_loop().create_future()
        return super()._make_request_call_future(method)


def _tls(credentials: Credentials, renew: Renew) -> Any:
    def configure(found: Credentials) -> Any:
        return grpc.ssl_server_certificate_configuration([(found.key, found.certificate)], root_certificates=found.ca)

    def fetch() -> Any:
        return None if (found := renew()) is None else configure(found)

    return grpc.dynamic_ssl_server_credentials(configure(credentials), fetch, require_client_authentication=True)


def _why_not(host: str, port: int) -> str:
    """Return why listening on a port fails, which gRPC does not report."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        return f"{error.strerror or error}; choose another with --listen HOST:PORT"
    return "the server's key or certificate cannot be used; renew it with `fedge pki init`"
