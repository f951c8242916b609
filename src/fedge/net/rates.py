"""How often something may happen: a sustained rate and a burst."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

Clock = Callable[[], float]


class Rate(NamedTuple):
    """A sustained rate per second, and `burst` at once."""

    per_s: float
    burst: float

    def __str__(self) -> str:
        return f"{self.per_s:g} a second, {self.burst:g} at once"


class TokenBucket:
    """What is left of a rate; it begins full."""

    def __init__(self, rate: Rate, clock: Clock = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._tokens, self._counted = rate.burst, clock()

    def take(self) -> bool:
        """Take one token; False if there is none."""
        self.refill(0.0)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def refill(self, extra: float) -> None:
        """Add what has come since the last call, and some more."""
        now = self._clock()
        self._tokens = min(self._rate.burst, self._tokens + (now - self._counted) * self._rate.per_s + extra)
        self._counted = now

    @property
    def is_surely_full(self) -> bool:
        """Whether nothing was taken for so long that a new bucket would be the same."""
        return self._clock() - self._counted >= self._rate.burst / self._rate.per_s


class TokenBuckets:
    """A bucket for each key. Only those that are not full again are kept, so that nobody can fill the memory."""

    def __init__(self, rate: Rate, clock: Clock = time.monotonic) -> None:
        self.rate, self._clock = rate, clock
        self._buckets: dict[Hashable, TokenBucket] = {}  # the one that was used last comes last

    def take(self, key: Hashable) -> bool:
        """Take one token of a key's bucket; False if there is none."""
        while self._buckets and (oldest := next(iter(self._buckets.items())))[1].is_surely_full:
            del self._buckets[oldest[0]]
        bucket = self._buckets.pop(key, None) or TokenBucket(self.rate, self._clock)
        self._buckets[key] = bucket
        return bucket.take()

    def __len__(self) -> int:
        return len(self._buckets)
