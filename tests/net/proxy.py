"""A TCP proxy between a client and a server, which passes TLS through, and can be slow or cut connections."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

_PIECE_BYTES = 16 << 10


class Proxy:
    """Forward connections from `port` on loopback to a server; an asynchronous context manager.

    `idle_s`: cut connections that were idle for this long. `rate`: bytes/s per connection and direction. `connect`: act
    as an HTTP proxy with CONNECT.
    """

    def __init__(
        self, port: int, host: str = "127.0.0.1", idle_s: float | None = None, rate: float | None = None,
        connect: bool = False,
    ) -> None:  # fmt: skip
        self.num_connections, self.num_up, self.num_down, self.num_cut = 0, 0, 0, 0
        self.refusing = False  # whether new connections are closed at once
        self._target = (host, port)
        self._idle_s, self._rate, self._connect = idle_s, rate, connect
        self._open: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, asyncio.StreamWriter | None]] = {}
        self._held = asyncio.Event()
        self._held.set()
        self._forgotten: list[asyncio.Event] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.resume()
        while self._open:
            self.cut()
            await asyncio.wait(list(self._open))
        await self._server.wait_closed()

    def cut(self) -> None:
        """Abort all connections now."""
        for writers in self._open.values():
            for writer in writers:
                if writer:
                    writer.transport.abort()

    def stop(self) -> None:
        """Forward no more bytes but keep all connections open, like a NAT that has dropped its state."""
        self._held.clear()

    def resume(self) -> None:
        for held in (self._held, *self._forgotten):
            held.set()

    def forget(self) -> None:
        """Forward no more bytes on current connections; later ones work."""
        self._held.clear()
        self._forgotten.append(self._held)
        self._held = asyncio.Event()
        self._held.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.num_connections += 1
        self._open[task] = (writer, None)
        try:
            if self.refusing or (self._connect and not await self._asked(reader, writer)):
                return
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            self._open[task] = (writer, far_writer)
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._both(reader, writer, far_reader, far_writer)
        finally:
            for each in self._open.pop(task):
                if each:
                    each.transport.abort()

    async def _both(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        loop = asyncio.get_running_loop()
        moved, held = loop.time(), self._held

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, up: bool) -> None:
            nonlocal moved
            free_at = loop.time()  # when the bucket has room again
            while data := await source.read(_PIECE_BYTES):
                await held.wait()
                moved = loop.time()
                if self._rate:
                    free_at = max(free_at, moved) + len(data) / self._rate
                    await asyncio.sleep(free_at - moved)
                sink.write(data)
                await sink.drain()
                if up:
                    self.num_up += len(data)
                else:
                    self.num_down += len(data)

        pumps = {loop.create_task(pump(reader, far_writer, True)), loop.create_task(pump(far_reader, writer, False))}
        try:
            while True:
                wait_s = None if self._idle_s is None else max(0.0, moved + self._idle_s - loop.time())
                done, _ = await asyncio.wait(pumps, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                if done:
                    for each in done:
                        each.result()
                    return
                if self._idle_s is not None and loop.time() >= moved + self._idle_s:
                    self.num_cut += 1
                    return
        finally:
            for each in pumps:
                each.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a CONNECT request; return whether it was one."""
        head = await reader.readuntil(b"\r\n\r\n")
        target = head.split()[1].decode()
        good = head.startswith(b"CONNECT ") and target.rpartition(":")[2] == str(self._target[1])
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" if good else b"HTTP/1.1 403 Forbidden\r\n\r\n")
        await writer.drain()
        return good
