"""Who may upload now: grants bound the bytes that a server buffers, and a slow upload yields to those that wait."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fedge.net.actions import GrantAction, SendGrant, SendHold

STREAM_BYTES = 8 << 20
"""What a fast upload takes of a server's memory, as measured."""
LEAST_BYTES = 1 << 18
"""What any upload takes."""
WINDOW_S = 10.0
RATE_S = 1.0
"""Over which the rate of an upload is measured; it buffers at most about as much as arrives meanwhile."""


class _Upload:
    """A client with a grant. Its rate is measured over one window after another."""

    def __init__(self, size: int, cost: int, window_s: float, now: float) -> None:
        self.size, self.cost, self.window_s = size, cost, window_s
        self.since, self.num_bytes = now, 0  # of the present window
        self._measured, self._arrived = now, 0  # of the present measurement of its rate
        self.slow = False  # in the last complete window

    def measure(self, num_bytes: int, now: float) -> int | None:
        """Count bytes; return how many arrive in `RATE_S`, whenever that is known anew."""
        self.num_bytes += num_bytes
        self._arrived += num_bytes
        seconds = now - self._measured
        if seconds < RATE_S:
            return None
        rate = int(self._arrived * RATE_S / seconds)
        self._measured, self._arrived = now, 0
        return rate

    def roll(self, min_rate: float, now: float) -> None:
        """Begin a new window if the present one is complete."""
        if now >= self.since + self.window_s:
            self.slow = self.num_bytes < min_rate * (now - self.since)
            self.since, self.num_bytes = now, 0


class Grants:
    """The uploads of one exchange, first come, first served.

    An upload takes min(its size, `stream_bytes`) of `buffer_bytes`; a slow one takes what arrives in a second. One is
    always allowed. A client that uploads less
    than `min_rate` bytes/s, or nothing, for a window of 10 s is held if others wait, and queued again behind them. Its
    next window is twice as long: two slow clients that take turns finish both.
    """

    def __init__(self, buffer_bytes: int, stream_bytes: int = STREAM_BYTES, min_rate: float = 0.0) -> None:
        self._buffer_bytes, self._stream_bytes, self._min_rate = buffer_bytes, stream_bytes, min_rate
        self._queue: dict[int, int] = {}  # sizes, in order of arrival
        self._granted: dict[int, _Upload] = {}
        self._holds: dict[int, int] = {}  # how often each client was held
        self._used = 0

    @property
    def granted(self) -> frozenset[int]:
        """Return the clients that may upload."""
        return frozenset(self._granted)

    @property
    def waiting(self) -> tuple[int, ...]:
        """Return the clients that wait for a grant, first the one that is next."""
        return tuple(self._queue)

    @property
    def used_bytes(self) -> int:
        """Return the part of the buffer that is taken by grants."""
        return self._used

    def has_grant(self, client: int) -> bool:
        """Return whether the client may upload now."""
        return client in self._granted

    def request(self, client: int, size: int, now: float) -> list[GrantAction]:
        """Queue an upload of that many bytes; asked again, a client keeps its grant, or its place in the queue."""
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
        """Forget a client: its upload has arrived or ended, or it no longer waits."""
        self._queue.pop(client, None)
        if client in self._granted:
            self._take_back(client)
        return self.tick(now)

    def tick(self, now: float) -> list[GrantAction]:
        """Grant what fits; if others still wait, hold slow uploads for them."""
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
        """End a grant, and return the size of the upload."""
        upload = self._granted.pop(client)
        self._used -= upload.cost
        return upload.size

    def _charge(self, upload: _Upload, rate: int) -> None:
        """Charge an upload for what it buffers at this rate, as far as the buffer has room for more."""
        most = max(upload.cost, self._buffer_bytes - self._used + upload.cost)
        cost = min(self._cost(upload.size), max(LEAST_BYTES, rate), most)
        self._used += cost - upload.cost
        upload.cost = cost

    def next_wake(self) -> float:
        """Return when to call `tick` if nothing happens before; infinity if there is no need to."""
        if not self._queue or not self._min_rate:
            return math.inf
        return min(upload.since + upload.window_s for upload in self._granted.values())

    def _cost(self, size: int) -> int:
        return min(size, self._stream_bytes)
