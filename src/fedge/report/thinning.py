"""Thinning of long curves without losing their extremes."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[tuple[int], np.dtype[Any]]


def thin(num_buckets: int, *curves: Array) -> Array:
    """Return the indices to keep of curves of equal length: minimum, maximum and last point in each bucket.

    They include those points of every curve. Short curves are kept whole. Average over seeds before thinning: the mean
    of thinned curves would differ.
    """
    length = len(curves[0])
    if length <= num_buckets:
        return np.arange(length)
    edges = np.linspace(0, length, num_buckets + 1).astype(np.int64)
    starts, ends = edges[:-1], edges[1:]
    kept = [ends - 1, np.zeros(1, np.int64)]
    for curve in curves:
        for extreme in (np.minimum, np.maximum):
            values = extreme.reduceat(curve, starts)
            bucket = np.repeat(np.arange(num_buckets), ends - starts)
            hits = np.flatnonzero(curve == values[bucket])
            kept.append(hits[np.unique(bucket[hits], return_index=True)[1]])  # of equal values, the first
    return np.unique(np.concatenate(kept))
