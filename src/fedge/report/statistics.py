"""Means over few seeds, with confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import cos, fsum, hypot, pi, sin, sqrt, tan
from typing import Literal

LEVEL = 0.95
"""The confidence of all intervals in tables and charts."""


MIN_SEEDS = 3
"""The interval of two seeds is 12.7 standard errors wide on either side: their range is more informative."""


@dataclass(frozen=True)
class Estimate:
    """A mean over `count` seeds; `low` and `high` bound a confidence interval, or the range of few seeds.

    A single seed has neither, and neither do runs with different settings.
    """

    mean: float
    low: float | None
    high: float | None
    count: int
    band: Literal["interval", "range"] = "interval"

    @property
    def half(self) -> float | None:
        """Half the width of the interval, as written after the ±."""
        return None if self.high is None or self.band == "range" else self.high - self.mean


@dataclass(frozen=True)
class Reached:
    """The cost to a target, over the seeds that reached it, and the number of these seeds."""

    estimate: Estimate | None
    reached: int
    count: int


def average(values: Sequence[float]) -> float:
    """Return the mean, also of numbers near the largest, whose sum is beyond any float."""
    try:
        return fsum(values) / len(values)
    except OverflowError:
        return fsum(value / len(values) for value in values)


def interval(values: Sequence[float], level: float = LEVEL) -> Estimate:
    """Return Student's confidence interval of the mean; for a single value the mean alone."""
    count = len(values)
    if count == 0:
        raise ValueError("expected at least one value to estimate a mean from, got none")
    mean = min(max(average(values), min(values)), max(values))  # rounding may exceed the range of the values
    if count == 1:
        return Estimate(mean, None, None, 1)
    deviation = hypot(*(value - mean for value in values)) / sqrt(count - 1)
    half = student(count - 1, level) * deviation / sqrt(count)
    return Estimate(mean, mean - half, mean + half, count)


def to_target(values: Sequence[float | None], mixed: bool = False) -> Reached:
    """Return the cost to a target; None stands for a seed that did not reach it.

    Fewer than `MIN_SEEDS` values have their range in place of an interval. With `mixed` the values are of different
    settings, not a sample of one distribution, so their mean has neither.
    """
    found = [value for value in values if value is not None]
    estimate = interval(found) if found else None
    if estimate and mixed:
        estimate = replace(estimate, low=None, high=None)
    elif estimate and 1 < len(found) < MIN_SEEDS:
        estimate = replace(estimate, low=min(found), high=max(found), band="range")
    return Reached(estimate, len(found), len(values))


@lru_cache
def student(freedom: int, level: float) -> float:
    """Return the t with P(|T| <= t) = level at these degrees of freedom, by bisection of the distribution."""
    if freedom < 1 or not 0 < level < 1:
        raise ValueError(f"expected freedom >= 1 and 0 < level < 1, got {freedom} and {level}")
    low, high = 0.0, pi / 2
    while low < (middle := (low + high) / 2) < high:
        if _probability(middle, freedom) < level:
            low = middle
        else:
            high = middle
    return sqrt(freedom) * tan(low)


def _probability(angle: float, freedom: int) -> float:
    """P(|T| <= sqrt(freedom) tan(angle)): Abramowitz and Stegun, 26.7.3 (odd freedom) and 26.7.4 (even)."""
    odd = freedom % 2
    term = cos(angle) if odd else 1.0
    total = 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= k / (k + 1) * cos(angle) ** 2
    total *= sin(angle)
    return 2 / pi * (angle + total) if odd else total


def interval_note(estimates: Sequence[Estimate], of: str) -> str:
    """Return a note on the lines around means; empty without lines. `of` names what an estimate is over."""
    words = {"interval": f"{LEVEL:.0%} confidence interval", "range": f"range of fewer than {MIN_SEEDS} {of}"}
    found = {one.band for one in estimates if one.low != one.high}
    named = [words[band] for band in words if band in found]
    return f"lines: {', or '.join(named)}" if named else ""
