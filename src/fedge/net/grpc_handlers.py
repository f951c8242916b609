"""gRPC handlers that pass a server's calls to its `Service`."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar
from urllib.parse import unquote

from cryptography import x509

from fedge.net.certificates import common_name, fingerprint
from fedge.net.grpc_stream import END, SESSION_KEY, TOKEN_KEY, MessageStream, grpc, in_background
from fedge.net.protocol import MAX_TOKEN, TOKEN_PATTERN
from fedge.net.rates import TokenBuckets
from fedge.net.transport import LinkError, Peer, RefusalError, Service, StreamLimits

_log = logging.getLogger(__name__)
T = TypeVar("T")
_LONGEST_REASON = 1000  # characters


class _ServerStream(MessageStream):
    """A server's end of a stream."""

    def __init__(self, context: Any) -> None:
        super().__init__()
        self._context = context
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def _read(self) -> bytes | None:
        data = await self._context.read()
        if data is grpc.aio.EOF:
            raise LinkError("the client disconnected")
        return None if data == END else data

    async def _write(self, data: bytes) -> None:
        await self._context.write(data)

    async def close(self) -> None:
        """End the stream, after messages in transit."""
        async with self._turn:
            self.mark_broken("the stream was closed here")
            if not self.closed.done():
                self.closed.set_result(None)


class ServiceHandlers:
    """The gRPC handlers: they check the caller and its limits, then call the service."""

    def __init__(self, service: Service, limits: StreamLimits) -> None:
        self._service, self._limits = service, limits
        self._most = {"session": limits.sessions, "fetch": limits.fetches, "upload": limits.uploads}
        rates = {"session": limits.session_rate, "fetch": limits.fetch_rate, "upload": limits.upload_rate}
        self._rates = {kind: TokenBuckets(rate) for kind, rate in rates.items()}
        self._open: Counter[tuple[str, str]] = Counter()
        self._tasks: set[asyncio.Task[Any]] = set()

    def by_method(self) -> dict[str, Any]:
        """Return the handlers by method name."""
        return {
            "Session": grpc.stream_stream_rpc_method_handler(self.session),
            "Fetch": grpc.unary_stream_rpc_method_handler(self.fetch),
            # the answer may precede the end of the payload; a stream_unary method would lose it
            "Upload": grpc.stream_stream_rpc_method_handler(self.upload),
        }

    async def finish(self) -> None:
        """Wait for tasks that still run for disconnected peers."""
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
        """Run the service in a task that gRPC cannot cancel; its reads and writes then raise LinkError instead."""
        key = (kind, peer.name or peer.address)
        self._open[key] += 1
        task = in_background(work)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(key, done))
        try:
            waiting: set[asyncio.Future[Any]] = {task, stream.closed}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # re-raise: grpcio leaks if a cancelled call is answered (issue 43360)
            stream.mark_broken("the client disconnected")
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
            reason, code = "internal error of the server; see its log", grpc.StatusCode.INTERNAL
        finally:
            stream.mark_broken("the stream has ended")
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
        """Refuse a peer with too many open streams of a kind, or one that opens them too fast; log nothing."""
        who = peer.name or peer.address
        if self._open[kind, who] >= self._most[kind]:
            reason = f"{who} already has {self._most[kind]} open streams for {kind}, the maximum; try again later"
        elif not self._rates[kind].take(who):
            reason = (
                f"{who} opens streams for {kind} too fast: expected at most {self._rates[kind].rate}; try again later"
            )
        else:
            return
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, reason)

    async def _token(self, data: bytes | str, context: Any) -> str:
        text = data.decode("ascii", "replace") if isinstance(data, bytes) else data
        if not 0 < len(text) <= MAX_TOKEN or not re.match(TOKEN_PATTERN, text):
            expected = f"expected a token of 1 to {MAX_TOKEN} letters, digits, dots and hyphens"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, expected)
        return text

    async def _peer(self, context: Any) -> Peer:
        address = unquote(context.peer()).partition(":")[2]
        (pem,) = context.auth_context().get("x509_pem_cert", [None])
        if pem is None:
            return Peer(None, None, address)
        certificate = x509.load_pem_x509_certificate(pem)
        if (name := common_name(certificate.subject)) is None:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "expected a certificate with one common name")
        expires_s = certificate.not_valid_after_utc.timestamp() - time.time()
        return Peer(name, fingerprint(certificate), address, expires_s)
