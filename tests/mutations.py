"""Fuzzing of decoders with bytes that no encoder wrote."""

from __future__ import annotations

import random
import signal
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

WATCHDOG_S = 30.0
WAIT_S = 120.0
SLACK_BYTES = 1 << 16  # a decoder's allowance in addition to its input and result: texts, objects, frames

_EXTREMES = [
    number.to_bytes(width, order)
    for width in (1, 2, 4, 8)
    for order in ("little", "big")
    for number in (0, 1, (1 << 8 * width - 1) - 1, 1 << 8 * width - 1, (1 << 8 * width) - 1)
]


class Hang(BaseException):
    """A decoder did not return in time. Not an Exception, so that no decoder swallows it."""


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return the data with one to four mutations: bits, bytes, numbers or slices changed, added, removed, repeated."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        rng.choice(_CHANGES)(changed, rng)
    return bytes(changed)


def fuzz(
    make: Callable[[random.Random], bytes],
    decode: Callable[[bytes], object],
    refusal: type[Exception],
    num_cases: int,
    max_bytes: Callable[[bytes], int],
) -> Counter[str]:
    """Decode cases drawn with a fixed seed; return the counts of decoded cases (`""`) and of rejections by message.

    A case fails if it raises anything but a `refusal`, hangs, or allocates more than `max_bytes`.
    """
    rng = random.Random(14)
    return Counter(outcome(make(rng), decode, refusal, max_bytes) for _ in range(num_cases))


def outcome(
    case: bytes, decode: Callable[[bytes], object], refusal: type[Exception], max_bytes: Callable[[bytes], int]
) -> str:
    """Decode one case under the same rules; return the message of the rejection, or `""`."""
    with watched(), _bounded(max_bytes(case) + SLACK_BYTES, case):
        try:
            decode(case)
        except refusal as error:
            return str(error)
    return ""


@contextmanager
def watched() -> Iterator[None]:
    """Raise `Hang` after 30 s of processor time, or after two minutes with waiting for other processes."""

    def bark(number: int, frame: FrameType | None) -> None:
        raise Hang(f"not done after {WATCHDOG_S:g} s of processor time, or {WAIT_S:g} s in total")

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, WATCHDOG_S), signal.SIGALRM: (signal.ITIMER_REAL, WAIT_S)}
    before = {number: signal.signal(number, bark) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


@contextmanager
def _bounded(max_bytes: int, case: bytes) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= max_bytes, (
        f"{peak} bytes were allocated for {len(case)}, expected at most {max_bytes}: {case[:400]!r}"
    )


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.randrange(256)


def _overwrite(data: bytearray, rng: random.Random) -> None:
    number, start = rng.choice(_EXTREMES), rng.randrange(len(data) + 1)
    data[start : start + len(number)] = number


def _insert(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data) + 1)
    data[start:start] = rng.choice([rng.randbytes(rng.randint(1, 8)), bytes(rng.randint(1, 64)), rng.choice(_EXTREMES)])


def _remove(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data) + 1)
    del data[start : start + rng.randint(1, 16)]


def _repeat(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data) + 1)
    data[start:start] = data[start : start + rng.randint(1, 32)] * rng.choice([1, 1, 2, 50])


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


_CHANGES = [_flip, _flip, _set, _set, _overwrite, _overwrite, _insert, _remove, _repeat, _cut]
