"""Rate limits by token buckets: a sustained rate and a burst."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

Clock = Callable[[], float]


class Rate(NamedTuple):
    """A sustained rate per second, and the size of a burst."""

    per_s: float
    burst: float

    def __str__(self) -> str:
        return f"{self.per_s:g} per second, {self.burst:g} at once"


class TokenBucket:
    """A token bucket, full at the start."""

    def __init__(self, rate: Rate, clock: Clock = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._tokens, self._counted = rate.burst, clock()

    def take(self) -> bool:
        """Take one token; return False if there is none."""
        self.refill(0.0)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def refill(self, extra: float) -> None:
        """Add the tokens earned since the last call, and `extra` more."""
        now = self._clock()
        self._tokens = min(self._rate.burst, self._tokens + (now - self._counted) * self._rate.per_s + extra)
        self._counted = now

    @property
    def is_surely_full(self) -> bool:
        """Whether enough time has passed that the bucket must be full, like a new one."""
        return self._clock() - self._counted >= self._rate.burst / self._rate.per_s


class TokenBuckets:
    """A bucket per key. Buckets that are full again are dropped, so that nobody can exhaust the memory."""

    def __init__(self, rate: Rate, clock: Clock = time.monotonic) -> None:
        self.rate, self._clock = rate, clock
        self._buckets: dict[Hashable, TokenBucket] = {}  # in order of last use

    def take(self, key: Hashable) -> bool:
        """Take one token from a key's bucket; return False if there is none."""
        while self._buckets and (oldest := next(iter(self._buckets.items())))[1].is_surely_full:
            del self._buckets[oldest[0]]
        bucket = self._buckets.pop(key, None) or TokenBucket(self.rate, self._clock)
        self._buckets[key] = bucket
        return bucket.take()

    def __len__(self) -> int:
        return len(self._buckets)
