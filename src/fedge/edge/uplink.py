"""Who has sent its upload when: the clients of a cell share its uplink in time (TDMA).

Among those that have finished computing, the one with the shortest remaining transmission sends; one that becomes ready
with less to send interrupts it. The link is never idle while somebody is ready, so that the last one finishes as early
as in any other order, and the mean finish is the earliest possible.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from itertools import pairwise
from math import inf

import numpy as np


def finish_times(ready_s: np.ndarray, transmission_s: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """When each client has sent everything. Of equal remaining transmissions that of the earlier position goes first.

    Each interruption hangs on what came before it, so this is a walk through events rather than array arithmetic: with
    a heap, n log n in the clients of a cell, which is milliseconds for ten thousand.
    """
    order = np.lexsort((ready_s, cells))
    starts = np.flatnonzero(np.diff(cells[order])) + 1
    ready, transmission = ready_s.tolist(), transmission_s.tolist()
    finish = [inf] * len(ready)
    for members in np.split(order, starts):
        _send(members.tolist(), ready, transmission, finish)
    return np.asarray(np.maximum(finish, ready_s + transmission_s))  # not earlier by rounding


def _send(members: list[int], ready: list[float], transmission: list[float], finish: list[float]) -> None:
    """Fill in the finish times of one cell's members, given in the order in which they become ready."""
    queue: list[tuple[float, int]] = []
    now = -inf
    arrivals = pairwise([*(ready[client] for client in members), inf])
    for client, (arrival, until) in zip(members, arrivals, strict=True):
        now = max(now, arrival)
        heappush(queue, (transmission[client], client))
        while queue:
            remaining, sender = queue[0]
            if now + remaining > until:
                heapreplace(queue, (remaining - (until - now), sender))
                now = until
                break
            heappop(queue)
            now += remaining
            finish[sender] = now
