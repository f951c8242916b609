"""A client's connection to a server over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from fedge.net.address import Address
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
    ("grpc.use_local_subchannel_pool", 1),  # a separate connection, without back-off from earlier ones
    ("grpc.enable_retries", 0),
)
_SESSION_PINGS = ping_after(60, 20)
_PAYLOAD_PINGS = ping_after(60, 300)  # pings queue behind the payload, and a payload ends with its session anyway
_FAREWELL_S = 2.0  # time for the server to end a stream that was closed here
_CLOSED_HERE = "the connection was closed here"
_DENIALS = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED)


async def connect(
    host: str, port: int, credentials: Credentials | None, proxy: str | None = None, timeout_s: float = 30.0
) -> GrpcSession:
    """Open a session with a server, through an HTTP proxy if one is given (http://HOST:PORT).

    Raises LinkError if the server cannot be reached, DeniedError if retrying cannot help.
    """
    options: list[tuple[str, Any]] = [*_CLIENT_OPTIONS, ("grpc.enable_http_proxy", 1 if proxy else 0)]
    if proxy:
        options.append(("grpc.http_proxy", proxy))
    target = str(Address(host, port))
    if credentials is None:
        dial = partial(grpc.aio.insecure_channel, target)
    else:
        tls = grpc.ssl_channel_credentials(credentials.ca, credentials.key, credentials.certificate)
        dial = partial(grpc.aio.secure_channel, target, tls)
    channel = dial(options=[*options, *_SESSION_PINGS])
    line = _Line(channel, channel.stream_stream(f"/{SERVICE}/Session")())
    del channel
    try:
        async with asyncio.timeout(timeout_s):
            if SESSION_KEY in dict(await line.call.initial_metadata() or ()):
                return GrpcSession(line, partial(dial, options=[*options, *_PAYLOAD_PINGS]))
            error, unavailable = await _failure(line), await line.call.code() is grpc.StatusCode.UNAVAILABLE
    except TimeoutError:
        error, unavailable = LinkError(f"{target} did not answer within {timeout_s:g} s"), True
    except BaseException:
        await line.end()
        raise
    await line.end()
    reason = await asyncio.to_thread(explain, host, port, credentials, proxy) if unavailable else None
    raise reason or error


class _Line:
    """A channel and its only call.

    A stored exception keeps the frames that it passed through alive. Frames refer to the line, not to the call, so
    that an exception does not keep a connection open.
    """

    def __init__(self, channel: Any, call: Any) -> None:
        self.channel, self.call = channel, call

    async def finish(self) -> None:
        """Finish writing, and wait for the server to end the call."""
        if self.call is not None:
            await self.call.done_writing()
        if self.call is not None:
            await self.call.code()

    async def end(self) -> None:
        """Close the connection; idempotent."""
        channel, call = self.channel, self.call
        self.channel = self.call = None
        if channel is not None:
            call.cancel()
            await channel.close()


class GrpcSession(MessageStream):
    """A client's end of a session: the control stream, and separate streams for payloads.

    Each payload has its own connection. Otherwise control messages would queue behind buffered payload bytes, and gRPC
    would keep these buffers, a megabyte or more, for the whole session.
    """

    def __init__(self, line: _Line, dial: Callable[[], Any]) -> None:
        super().__init__()
        self._line, self._dial = line, dial
        self._payloads: set[_Line] = set()

    async def _read(self) -> bytes | None:
        data = await _read(self._line)
        if data is None:
            self.mark_broken("the server closed the session")
        return data

    async def _write(self, data: bytes) -> None:
        if not await _write(self._line, data):
            raise await _failure(self._line)

    async def close(self) -> None:
        """End the session. Never raises."""
        try:
            async with asyncio.timeout(_FAREWELL_S):
                await self.send(END)
                self.mark_broken("the session was closed here")
                await self._line.finish()
        except (LinkError, TimeoutError, grpc.aio.BaseError):
            pass
        finally:  # also if the caller is cancelled
            self.mark_broken("the session was closed here")
            for line in (self._line, *self._payloads):
                await line.end()

    async def fetch(self, token: str) -> AsyncIterator[bytes]:
        """Yield a payload in chunks. Raises LinkError, or DeniedError with the server's reason."""
        line = self._open(lambda channel: channel.unary_stream(f"/{SERVICE}/Fetch")(token.encode()))
        try:
            while (chunk := await _read(line)) is not None:
                yield chunk
        finally:
            self._payloads.discard(line)
            await line.end()

    async def upload(self, token: str, chunks: AsyncIterator[bytes]) -> bytes:
        """Send a payload and return the server's answer, which may arrive before the end of the payload.

        If `chunks` raises, or the caller is cancelled, the server sees a truncated payload.
        Raises LinkError, or DeniedError with the server's reason.
        """
        metadata = ((TOKEN_KEY, token),)
        line = self._open(lambda channel: channel.stream_stream(f"/{SERVICE}/Upload")(metadata=metadata))
        answer = in_background(_read(line))
        writing: asyncio.Task[bool] | None = None
        try:
            async for chunk in chunks:
                writing = in_background(_write(line, chunk))
                if not await asyncio.shield(writing):
                    break
            else:
                writing = in_background(_write(line, END))
                await asyncio.shield(writing)
            found = await asyncio.shield(answer)
        except asyncio.CancelledError:
            in_background(self._leave(line, writing))
            raise
        except BaseException:
            await self._leave(line, writing)
            raise
        await self._leave(line, writing)
        if found is None:
            raise LinkError("the server ended the upload without an answer")
        return found

    def _open(self, begin: Callable[[Any], Any]) -> _Line:
        if self._broken:
            raise LinkError(self._broken)
        channel = self._dial()
        line = _Line(channel, begin(channel))
        self._payloads.add(line)
        return line

    async def _leave(self, line: _Line, writing: asyncio.Task[bool] | None) -> None:
        """Finish writing and let the server end the call, since gRPC leaks memory for cancelled calls."""
        try:
            async with asyncio.timeout(_FAREWELL_S):
                if writing:
                    await writing
                await line.finish()
        except (TimeoutError, grpc.aio.BaseError):
            pass
        finally:
            self._payloads.discard(line)
            await line.end()


async def _read(line: _Line) -> bytes | None:
    """Return the next message; None at the end. Raises the error that `_failure` returns."""
    if line.call is None:
        raise LinkError(_CLOSED_HERE)
    try:
        data = await line.call.read()
    except grpc.aio.AioRpcError:
        data = None
    except asyncio.CancelledError:
        if _is_cancelled():
            raise
        raise LinkError(_CLOSED_HERE) from None
    if data is None:  # raised outside `except`, so that the error does not refer to gRPC's and thus to the call
        raise await _failure(line)
    return None if data is grpc.aio.EOF else bytes(data)


async def _write(line: _Line, data: bytes) -> bool:
    """Write a message; return False if the call has ended."""
    if line.call is None:
        return False
    try:
        await line.call.write(data)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return False
    except asyncio.CancelledError:
        if _is_cancelled():
            raise
        return False
    return True


def _is_cancelled() -> bool:
    """Return whether this task was cancelled, rather than the call."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _failure(line: _Line) -> LinkError:
    """Return an error with the reason why a call ended."""
    if (call := line.call) is None:
        return LinkError(_CLOSED_HERE)
    code, details = await call.code(), await call.details() or ""
    if code in _DENIALS:
        return DeniedError(details)
    if code is grpc.StatusCode.OK:
        return LinkError("the server closed the stream")
    if code is grpc.StatusCode.UNAVAILABLE:
        return LinkError("the connection to the server broke")
    return LinkError(f"{details} ({code.name.lower().replace('_', ' ')})")
