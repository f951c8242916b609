"""The Pareto front: the points that no other beats in every cost at once."""

from __future__ import annotations

from collections.abc import Sequence


def pareto_front(points: Sequence[Sequence[float]]) -> list[int]:
    """Return the indices of the points that no other dominates: none is as low in every cost and lower in one."""
    if len({len(point) for point in points}) > 1:
        raise ValueError(f"expected points of one dimension, got {sorted({len(point) for point in points})}")
    return [i for i, point in enumerate(points) if not any(_dominates(other, point) for other in points)]


def _dominates(a: Sequence[float], b: Sequence[float]) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))
