"""A client's connection to a server, by gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from fedge.net.grpc_stream import (
    END,
    OPTIONS,
    SERVICE,
    SESSION_KEY,
    TOKEN_KEY,
    MessageStream,
    grpc,
    in_background,
    ping_after,
)
from fedge.net.tls_diagnosis import explain
from fedge.net.transport import Credentials, DeniedError, LinkError

_CLIENT_OPTIONS: tuple[tuple[str, int], ...] = (
    *OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own, and no back-off from earlier ones
    ("grpc.enable_retries", 0),
)
_SESSION_PINGS = ping_after(60, 20)
_PAYLOAD_PINGS = ping_after(60, 300)  # a ping waits behind the payload; and the session's end is the payload's as well
_FAREWELL_S = 2.0  # for the server to end a stream that was closed here
_DENIALS = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED)


async def connect(
    host: str, port: int, credentials: Credentials | None, proxy: str | None = None, timeout_s: float = 30.0
) -> GrpcSession:
    """Open a session with a server, through an HTTP proxy if one is given (http://HOST:PORT).

    Raises LinkError if the server cannot be reached, DeniedError if a person has to act.
    """
    options: list[tuple[str, Any]] = [*_CLIENT_OPTIONS, ("grpc.enable_http_proxy", 1 if proxy else 0)]
    if proxy:
        options.append(("grpc.http_proxy", proxy))
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if credentials is None:
        dial = partial(grpc.aio.insecure_channel, target)
    else:
        tls = grpc.ssl_channel_credentials(credentials.ca, credentials.key, credentials.certificate)
        dial = partial(grpc.aio.secure_channel, target, tls)
    channel = dial(options=[*options, *_SESSION_PINGS])
    call = channel.stream_stream(f"/{SERVICE}/Session")()
    try:
        async with asyncio.timeout(timeout_s):
            if SESSION_KEY in dict(await call.initial_metadata() or ()):
                return GrpcSession(channel, call, partial(dial, options=[*options, *_PAYLOAD_PINGS]))
            error, unavailable = await _failure(call), await call.code() is grpc.StatusCode.UNAVAILABLE
    except TimeoutError:
        error, unavailable = LinkError(f"{target} did not answer within {timeout_s:g} s"), True
    except BaseException:
        await _end(channel, call)
        raise
    await _end(channel, call)
    reason = await asyncio.to_thread(explain, host, port, credentials, proxy) if unavailable else None
    raise reason or error


async def _end(channel: Any, call: Any) -> None:
    call.cancel()
    await channel.close()


class GrpcSession(MessageStream):
    """A client's end of a session: the control stream, and payloads beside it.

    Each payload has a connection to itself. Else the messages of a session would wait behind those bytes of a payload
    that are in buffers already, and gRPC would keep the buffers, a megabyte or more, as long as the session lasts.
    """

    def __init__(self, channel: Any, call: Any, dial: Callable[[], Any]) -> None:
        super().__init__(self._next, self._put)
        self._channel, self._call, self._dial = channel, call, dial
        self._payloads: set[Any] = set()  # channels

    async def _next(self) -> bytes | None:
        data = await _read(self._call)
        if data is None:
            self.snap("the server has closed the session")
        return data

    async def _put(self, data: bytes) -> None:
        if not await _write(self._call, data):
            raise await _failure(self._call)

    async def close(self) -> None:
        """End the session. Never raises."""
        try:
            async with asyncio.timeout(_FAREWELL_S):
                await self.send(END)
                self.snap("the session was closed here")
                await self._call.done_writing()
                await self._call.code()
        except (LinkError, TimeoutError, grpc.aio.BaseError):
            pass
        self.snap("the session was closed here")
        await _end(self._channel, self._call)
        for channel in tuple(self._payloads):
            await channel.close()

    async def fetch(self, token: str) -> AsyncIterator[bytes]:
        """Yield a payload in chunks. Raises LinkError, or DeniedError with the server's reason."""
        channel = self._open()
        call = channel.unary_stream(f"/{SERVICE}/Fetch")(token.encode())
        try:
            while (chunk := await _read(call)) is not None:
                yield chunk
        finally:
            self._payloads.discard(channel)
            await _end(channel, call)

    async def upload(self, token: str, chunks: AsyncIterator[bytes]) -> bytes:
        """Send a payload and return the server's answer, which may come before the end of the payload.

        If `chunks` raises, or the caller is cancelled, the server sees a payload that was cut off.
        Raises LinkError, or DeniedError with the server's reason.
        """
        channel = self._open()
        call = channel.stream_stream(f"/{SERVICE}/Upload")(metadata=((TOKEN_KEY, token),))
        answer = in_background(_read(call))
        writing: asyncio.Task[bool] | None = None
        try:
            async for chunk in chunks:
                writing = in_background(_write(call, chunk))
                if not await asyncio.shield(writing):
                    break
            else:
                writing = in_background(_write(call, END))
                await asyncio.shield(writing)
            found = await asyncio.shield(answer)
        except asyncio.CancelledError:
            in_background(self._leave(channel, call, writing))
            raise
        except BaseException:
            await self._leave(channel, call, writing)
            raise
        await self._leave(channel, call, writing)
        if found is None:
            raise LinkError("the server ended the upload without an answer")
        return found

    def _open(self) -> Any:
        if self._broken:
            raise LinkError(self._broken)
        channel = self._dial()
        self._payloads.add(channel)
        return channel

    async def _leave(self, channel: Any, call: Any, writing: asyncio.Task[bool] | None) -> None:
        """Write no more, and let the server end the call, as gRPC leaks for calls that are cancelled."""
        try:
            async with asyncio.timeout(_FAREWELL_S):
                if writing:
                    await writing
                await call.done_writing()
                await call.code()
        except (TimeoutError, grpc.aio.BaseError):
            pass
        self._payloads.discard(channel)
        await _end(channel, call)


async def _read(call: Any) -> bytes | None:
    """Return the next message, None at the end; raises what `_failure` makes of a failure."""
    try:
        data = await call.read()
    except grpc.aio.AioRpcError:
        raise await _failure(call) from None
    except asyncio.CancelledError:
        _unless_cancelled_here()
        raise LinkError("the connection was closed here") from None
    return None if data is grpc.aio.EOF else bytes(data)


async def _write(call: Any, data: bytes) -> bool:
    """Write a message; False if the call has ended."""
    try:
        await call.write(data)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return False
    except asyncio.CancelledError:
        _unless_cancelled_here()
        return False
    return True


def _unless_cancelled_here() -> None:
    """Raise CancelledError if it is this task that was cancelled, and not the call."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _failure(call: Any) -> LinkError:
    """Return the error that says why a call has ended."""
    code, details = await call.code(), await call.details() or ""
    if code in _DENIALS:
        return DeniedError(details)
    if code is grpc.StatusCode.OK:
        return LinkError("the server has closed the stream")
    if code is grpc.StatusCode.UNAVAILABLE:
        return LinkError("the connection to the server broke")
    return LinkError(f"{details} ({code.name.lower().replace('_', ' ')})")
