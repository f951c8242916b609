"""Rate limits, with a fake clock."""

from __future__ import annotations

from fedge.net.rates import Rate, TokenBuckets

RATE = Rate(10.0, 30.0)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_burst_then_sustained_rate() -> None:
    clock = Clock()
    buckets = TokenBuckets(RATE, clock)
    assert [buckets.take("a") for _ in range(40)] == [True] * 30 + [False] * 10
    clock.now += 1.05
    assert [buckets.take("a") for _ in range(20)] == [True] * 10 + [False] * 10
    clock.now += 100
    assert sum(buckets.take("a") for _ in range(100)) == 30  # no more than a burst accumulates


def test_peers_do_not_share_a_bucket() -> None:
    buckets = TokenBuckets(RATE, Clock())
    while buckets.take("greedy"):
        pass
    assert buckets.take("other")


def test_peer_within_the_rate_is_never_refused() -> None:
    clock = Clock()
    buckets = TokenBuckets(RATE, clock)
    for _ in range(1000):
        clock.now += 0.1001
        assert buckets.take("a")


def test_full_buckets_are_dropped() -> None:
    """Only the buckets of the last three seconds are kept, however many peers there were."""
    clock = Clock()
    buckets = TokenBuckets(RATE, clock)
    for number in range(10_000):
        clock.now += 0.01
        assert buckets.take(number)
        assert len(buckets) <= 301
    while buckets.take("greedy"):
        pass
    clock.now += 2.9  # a bucket that is not full is kept
    buckets.take("other")
    assert sum(buckets.take("greedy") for _ in range(100)) == 29
