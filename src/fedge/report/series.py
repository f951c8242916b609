"""Mean curves: the records of several seeds, averaged to one line with a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

import numpy as np

from fedge.core.errors import ConfigError, nearest
from fedge.core.fields import AXES
from fedge.report.groups import RunGroup, RunView, has
from fedge.report.statistics import LEVEL, MIN_SEEDS, student
from fedge.report.thinning import thin

Array = np.ndarray[tuple[int], np.dtype[np.float64]]

MAX_POINTS = 400
"""More points than a printed column can show.

Longer curves keep the extremes and the last point of each of `NUM_BUCKETS`.
"""
NUM_BUCKETS = 100


@dataclass(frozen=True)
class Series:
    """The mean of a metric over seeds, with the band around it; a single seed has none.

    The band of runs with different settings is their range, because a confidence interval requires a sample of one
    setting. `seeds` has a row for each run in the mean: for `count` of the group's `num_runs`.
    """

    label: str
    x: Array
    mean: Array
    low: Array
    high: Array
    count: int
    num_runs: int
    band: Literal["none", "range", "interval"]
    seeds: np.ndarray[tuple[int, int], np.dtype[np.float64]]
    num_points: int  # before a long curve was thinned


def trace(group: RunGroup, x: str, y: str) -> Series:
    """Return the metric y of a group over rounds, or over an accumulated cost, in the range that all seeds cover.

    Unfinished runs would shorten that range, so they are used only if no run has finished.
    """
    runs = [run for run in group.runs if run.summary is not None] or group.runs
    seeds = [_points(group.label, run, x, y) for run in runs if any(has(record, y) for record in run.rounds)]
    if not seeds:
        known = sorted({field for run in runs for record in run.rounds for field in record})
        raise ConfigError(
            f"{group.label}: no round has {y!r}{nearest(y, known)}; recorded: {', '.join(known) or 'nothing'}"
        )
    grid, values = align(group.label, seeds)
    mean = values.mean(axis=0)
    low = high = mean
    band: Literal["none", "range", "interval"] = "none"
    if len(seeds) > 1 and (len(seeds) < MIN_SEEDS or group.mixed):
        low, high, band = values.min(axis=0), values.max(axis=0), "range"
    elif len(seeds) > 1:
        half = student(len(seeds) - 1, LEVEL) * values.std(axis=0, ddof=1) / sqrt(len(seeds))
        low, high, band = mean - half, mean + half, "interval"
    # averaged before thinning: the mean of thinned curves would differ
    kept = thin(NUM_BUCKETS, mean, low, high) if len(grid) > MAX_POINTS else np.arange(len(grid))
    curve = mean[kept], low[kept], high[kept]
    return Series(group.label, grid[kept], *curve, len(seeds), len(group.runs), band, values[:, kept], len(grid))


def _points(label: str, run: RunView, x: str, y: str) -> tuple[Array, Array]:
    """Return the values of x at which the run measured y, and the values of y."""
    if x == "round":
        at = [record["round"] for record in run.rounds]
    elif x in AXES:
        lacking = next((record["round"] for record in run.rounds if not has(record, x)), None)
        if lacking is not None:
            hint = "; it needs an [edge] clock in the experiment" if x == "sim_seconds" else ""
            raise ConfigError(f"x: {label} has no {x} in round {lacking}, so its sum is unknown{hint}")
        at = np.cumsum([record[x] for record in run.rounds]).tolist()
    else:
        raise ConfigError(f"x: unknown {x!r}{nearest(x, AXES)}; known: {', '.join(AXES)}")
    # a dictionary, because rounds without cost have equal x: the last one counts
    points = {place: record[y] for place, record in zip(at, run.rounds, strict=True) if has(record, y)}
    return np.array(list(points), np.float64), np.array(list(points.values()), np.float64)


def align(label: str, curves: Sequence[tuple[Array, Array]]) -> tuple[Array, np.ndarray[tuple[int, int], Any]]:
    """Return the common values of x, within the range that all curves cover, and a row of values per curve.

    The values of x are those at which any curve was measured; other curves are interpolated there. Raises ConfigError
    if there is no common range.
    """
    grid = _grid(label, [xs for xs, _ in curves])
    return grid, np.stack([np.interp(grid, xs, ys) for xs, ys in curves])


def _grid(label: str, seeds: list[Array]) -> Array:
    """Return the values of x at which any seed was measured, within the range that all cover."""
    first, last = max(xs[0] for xs in seeds), min(xs[-1] for xs in seeds)
    if first > last:
        raise ConfigError(
            f"{label}: its runs share no range of x, one begins at {first:g}, another ends at {last:g};"
            " drop one of them"
        )
    places: Array = np.unique(np.concatenate(seeds))
    shared: Array = places[(places >= first) & (places <= last)]
    return shared
