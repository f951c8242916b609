"""Changes of runs, in order, for streams and polls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from secrets import token_hex
from typing import Any, NamedTuple

from fedge.runs.files import encode

_MOST_KEPT = 2_000
_MOST_KEPT_BYTES = 8 << 20
_HEARTBEAT_S = 15.0


class NewsItem(NamedTuple):
    """An event with its number; `data` is JSON."""

    seq: int
    kind: str
    data: bytes


class News:
    """The last events of this process. For use in the event loop only."""

    def __init__(self) -> None:
        self.session = token_hex(8)
        self.seq = 0
        self.num_readers = 0  # streams and recent polls
        self._kept: deque[NewsItem] = deque()
        self._num_bytes = 0
        self._changed = asyncio.Event()  # replaced at each event: readers share no lock, so that none disturbs another
        self._closed = False
        self.wanted = asyncio.Event()  # set while there is a reader

    async def publish(self, kind: str, data: dict[str, Any]) -> None:
        """Tell all readers."""
        self.seq += 1
        self._kept.append(NewsItem(self.seq, kind, encode(data)))
        self._num_bytes += len(self._kept[-1].data)
        while len(self._kept) > _MOST_KEPT or (self._num_bytes > _MOST_KEPT_BYTES and len(self._kept) > 1):
            self._num_bytes -= len(self._kept.popleft().data)
        self._wake()

    async def close(self) -> None:
        """End all streams, because the server ends."""
        self._closed = True
        self._wake()

    def since(self, seq: int) -> list[NewsItem] | None:
        """Return the events after a number; None if some were dropped, or if the number is of another process."""
        if seq > self.seq or (self._kept and seq < self._kept[0].seq - 1) or (not self._kept and seq < self.seq):
            return None
        return [item for item in self._kept if item.seq > seq]

    @property
    def place(self) -> str:
        """The number of the last event, with an id of this process: a page sends it to receive what it missed."""
        return f"{self.session} {self.seq}"

    def hello(self) -> bytes:
        return encode({"session": self.session, "seq": self.seq})

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield server-sent events from now on, with periodic comments that reveal a dead connection."""
        self.num_readers += 1
        self.wanted.set()
        try:
            seq = self.seq
            yield _event(seq, "hello", self.hello())
            while not self._closed:
                items = self.since(seq)
                if items is None:  # the reader is too slow and must start over
                    seq = self.seq
                    yield _event(seq, "hello", encode({"session": token_hex(8), "seq": seq}))
                    continue
                for item in items:
                    yield _event(*item)
                    seq = item.seq
                if self.seq == seq and not self._closed:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), _HEARTBEAT_S)
                if self.seq == seq:
                    yield b": alive\n\n"
        finally:
            self.num_readers -= 1

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _event(seq: int, kind: str, data: bytes) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (seq, kind.encode(), data)
