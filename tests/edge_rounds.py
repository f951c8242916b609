"""Handmade lines of edge.jsonl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Worker = tuple[int, int, float, float, float, float]
"""Client, cell, and seconds of download, compute, wait and upload."""


def edge_line(
    round: int = 1,
    rows: int = 1,
    cols: int = 1,
    workers: Sequence[Worker] = (),
    deadline_s: float | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Return the line of a round in which these clients worked; a cell's clients are those that worked in it."""
    num_cells = rows * cols
    done = [(cell, sum(seconds)) for _, cell, *seconds in workers]
    ends = [[finish for where, finish in done if where == cell] for cell in range(num_cells)]
    return {
        "round": round,
        "rows": rows,
        "cols": cols,
        "occupancy": [len(own) for own in ends],
        **{
            name: [worker[i] for worker in workers]
            for i, name in enumerate(("clients", "cell", "down_s", "compute_s", "wait_s", "up_s"))
        },
        "finish_s": [finish for _, finish in done],
        "late": [deadline_s is not None and finish > deadline_s for _, finish in done],
        "latency": [max(own, default=None) for own in ends],
        "merged": False,
        "deadline_s": deadline_s,
        **fields,
    }
