"""The Pareto front: the points that no other point dominates."""

from __future__ import annotations

from collections.abc import Sequence


def pareto_front(points: Sequence[Sequence[float]]) -> list[int]:
    """Return the indices of the points that no other dominates, that is, matches in every cost and beats in one.

    For two costs this takes O(n log n): in the order of the first cost, a point is kept if its second cost is the
    lowest so far.
    """
    sizes = {len(point) for point in points}
    if len(sizes) > 1:
        raise ValueError(f"expected points with the same number of costs, got {sorted(sizes)}")
    if sizes != {2}:
        return [i for i, point in enumerate(points) if not any(_dominates(other, point) for other in points)]
    front, lowest, last = [], float("inf"), None
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], points[i][1])):
        point = tuple(points[i])
        if point[1] < lowest or point == last:  # equal points do not dominate each other
            front.append(i)
            lowest, last = point[1], point
    return sorted(front)


def _dominates(a: Sequence[float], b: Sequence[float]) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))
