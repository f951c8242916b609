"""Upload grants: they bound the bytes that a server buffers, and slow uploads yield to waiting clients."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fedge.net.actions import GrantAction, SendGrant, SendHold

STREAM_BYTES = 8 << 20
"""Memory that a fast upload takes on the server, as measured."""
LEAST_BYTES = 1 << 18
"""Memory that any upload takes."""
WINDOW_S = 10.0
RATE_S = 1.0
"""Interval over which an upload's rate is measured; an upload buffers roughly the bytes of one interval."""


class _Upload:
    """A client with a grant. Its rate is measured over consecutive windows."""

    def __init__(self, size: int, cost: int, window_s: float, now: float) -> None:
        self.size, self.cost, self.window_s = size, cost, window_s
        self.since, self.num_bytes = now, 0  # of the current window
        self._measured, self._arrived = now, 0  # of the current rate measurement
        self.slow = False  # in the last complete window

    def measure(self, num_bytes: int, now: float) -> int | None:
        """Count bytes; return the bytes per `RATE_S` when a measurement completes, else None."""
        self.num_bytes += num_bytes
        self._arrived += num_bytes
        seconds = now - self._measured
        if seconds < RATE_S:
            return None
        rate = int(self._arrived * RATE_S / seconds)
        self._measured, self._arrived = now, 0
        return rate

    def roll(self, min_rate: float, now: float) -> None:
        """Start a new window if the current one is complete."""
        if now >= self.since + self.window_s:
            self.slow = self.num_bytes < min_rate * (now - self.since)
            self.since, self.num_bytes = now, 0


class Grants:
    """The uploads of one exchange, first come, first served.

    An upload takes min(its size, `stream_bytes`) of `buffer_bytes`; a slow one takes what arrives in a second. One
    upload is always allowed. If others wait, a client that uploads less than `min_rate` bytes/s over a window of 10 s
    is held and queued behind them. Its next window is twice as long, so that slow clients taking turns all finish.
    """

    def __init__(self, buffer_bytes: int, stream_bytes: int = STREAM_BYTES, min_rate: float = 0.0) -> None:
        self._buffer_bytes, self._stream_bytes, self._min_rate = buffer_bytes, stream_bytes, min_rate
        self._queue: dict[int, int] = {}  # sizes, in order of arrival
        self._granted: dict[int, _Upload] = {}
        self._holds: dict[int, int] = {}  # how often each client was held
        self._used = 0

    @property
    def granted(self) -> frozenset[int]:
        """The clients that may upload."""
        return frozenset(self._granted)

    @property
    def waiting(self) -> tuple[int, ...]:
        """The clients that wait for a grant, the next one first."""
        return tuple(self._queue)

    @property
    def used_bytes(self) -> int:
        """The bytes of the buffer taken by grants."""
        return self._used

    def has_grant(self, client: int) -> bool:
        """Return whether the client may upload now."""
        return client in self._granted

    def request(self, client: int, size: int, now: float) -> list[GrantAction]:
        """Queue an upload of `size` bytes; a client that asks again keeps its grant or its place in the queue."""
        if client in self._granted:
            return [SendGrant(client)]
        self._queue.setdefault(client, size)
        return self.tick(now)

    def progress(self, client: int, num_bytes: int, now: float) -> list[GrantAction]:
        """Count bytes that have arrived from a client."""
        if (upload := self._granted.get(client)) is None:
            return []
        rate = upload.measure(num_bytes, now)
        if rate is not None:
            self._charge(upload, rate)
        upload.roll(self._min_rate, now)
        return self.tick(now) if rate is not None or upload.slow else []

    def release(self, client: int, now: float) -> list[GrantAction]:
        """Remove a client whose upload has ended, or that no longer waits."""
        self._queue.pop(client, None)
        if client in self._granted:
            self._take_back(client)
        return self.tick(now)

    def tick(self, now: float) -> list[GrantAction]:
        """Grant the uploads that fit; if others still wait, hold slow uploads for them."""
        actions: list[GrantAction] = [*self._grant(now)]
        if not self._queue:
            return actions
        for upload in self._granted.values():
            upload.roll(self._min_rate, now)
        slow = [client for client, upload in self._granted.items() if upload.slow]
        for client in slow[: len(self._queue)]:
            self._queue[client] = self._take_back(client)
            self._holds[client] = self._holds.get(client, 0) + 1
            actions.append(SendHold(client))
        return [*actions, *self._grant(now)]

    def _grant(self, now: float) -> Iterator[SendGrant]:
        while self._queue:
            client, size = next(iter(self._queue.items()))
            if self._granted and self._used + self._cost(size) > self._buffer_bytes:
                break
            del self._queue[client]
            window_s = WINDOW_S * 2.0 ** self._holds.get(client, 0)
            self._granted[client] = _Upload(size, self._cost(size), window_s, now)
            self._used += self._cost(size)
            yield SendGrant(client)

    def _take_back(self, client: int) -> int:
        """End a grant and return the size of the upload."""
        upload = self._granted.pop(client)
        self._used -= upload.cost
        return upload.size

    def _charge(self, upload: _Upload, rate: int) -> None:
        """Charge an upload for the bytes that it buffers at this rate, limited by the room in the buffer."""
        most = max(upload.cost, self._buffer_bytes - self._used + upload.cost)
        cost = min(self._cost(upload.size), max(LEAST_BYTES, rate), most)
        self._used += cost - upload.cost
        upload.cost = cost

    def next_wake(self) -> float:
        """Return when to call `tick` if no event comes first; infinity if there is no need to."""
        if not self._queue or not self._min_rate:
            return math.inf
        return min(upload.since + upload.window_s for upload in self._granted.values())

    def _cost(self, size: int) -> int:
        return min(size, self._stream_bytes)
