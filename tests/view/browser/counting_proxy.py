"""A proxy in front of the page that counts a browser's requests, and can block the live stream."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from typing import Self

_REQUEST = re.compile(rb"^(?:GET|POST|HEAD) (\S+) HTTP/1\.1\r$", re.MULTILINE)


class CountingProxy:
    """Forwards connections to a port of this machine; listens inside its context."""

    def __init__(self, port: int, hold_streams: bool = False) -> None:
        self.paths: list[str] = []
        """The paths of all requests, without parameters, in order."""
        self.num_bytes = 0
        """Bytes of all answers, including their headers."""
        self._upstream, self._hold = port, hold_streams
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lock, self._open, self._down = Lock(), list[socket.socket](), False

    def count(self, path: str) -> int:
        with self._lock:
            return self.paths.count(path)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Break all connections, and new ones at once, for as long as the context lasts."""
        self._down = True
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._open.clear()
        yield
        self._down = False

    def __enter__(self) -> Self:
        Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listening, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self._down:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._upstream))
                self._open += (client, server)
                held = list[bool]()
                Thread(target=self._pump, args=(client, server, held, True), daemon=True).start()
                Thread(target=self._pump, args=(server, client, held, False), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, held: list[bool], asks: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if asks:
                    found = [match.decode().partition("?")[0] for match in _REQUEST.findall(data)]
                    with self._lock:
                        self.paths += found
                    if self._hold and "/api/live" in found:
                        held.append(True)
                elif held:
                    continue
                else:
                    with self._lock:
                        self.num_bytes += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
