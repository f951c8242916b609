"""Choose between `block` and `pool` by measuring both, and choose the block size."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path

from fedge.core.algorithm import Exchange, Info, Reply
from fedge.core.layout import Tree
from fedge.core.machine import num_processors
from fedge.core.question import Question, Sums
from fedge.core.server_side import ServerSide
from fedge.engines.block import Block
from fedge.engines.both_sides import BothSides
from fedge.engines.pool import Pool

_CACHE_BYTES = 4 << 20  # if the system does not report it
_MOST_ROWS = 64
_FEWEST_ROWS = 4  # below this, large models are faster one at a time
_HEAVY_FLOPS = 2e7  # above this, splitting an exchange over the cores pays off
_TRIALS = ("block", "pool", "pool", "block")
_CLEARLY = 0.8  # if pool takes less than this share of block's time, it wins without further trials
_WORTH_TRYING_S = 0.02  # shorter exchanges are not worth distributing

Notice = Callable[[str], None]


class Auto:
    """Uses `block` or `pool`, whichever is faster: both run some of the first exchanges, with identical results."""

    def __init__(self, sides: BothSides, block: Block, pool: Pool, num_workers: int, notice: Notice) -> None:
        self._works = sides.server.algorithm.works
        self._engines: dict[str, Block | Pool] = {"block": block, "pool": pool}
        self._pool, self._num_workers, self._notice = pool, num_workers, notice
        self._seconds: dict[str, list[float]] = {"block": [], "pool": []}
        self._trials = iter(_TRIALS)
        self._chosen: str | None = None

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        trains = any(self._works[exchange.work].trains for exchange in exchanges)
        if self._chosen is not None or not trains:
            return self._engines[self._chosen or "block"].run(exchanges, infos)
        name = next(self._trials)
        began = time.perf_counter()
        replies = self._engines[name].run(exchanges, infos)
        self._note(name, time.perf_counter() - began)
        return replies

    def evaluate(self, question: Question, info: Info) -> dict[int, Sums]:
        return self._engines[self._chosen or "block"].evaluate(question, info)

    def test(self, variables: Tree) -> Sums:
        return self._engines[self._chosen or "block"].test(variables)

    def _note(self, name: str, seconds: float) -> None:
        self._seconds[name].append(seconds)
        tried = sum(map(len, self._seconds.values()))
        if tried == 1 and seconds < _WORTH_TRYING_S:
            self._chosen = "block"
            return
        block, pool = (min(self._seconds[each], default=inf) for each in ("block", "pool"))
        if tried == len(_TRIALS) or pool < _CLEARLY * block:
            self._chosen = "block" if block <= pool else "pool"
            if self._chosen == "block":
                self._pool.close()
            self._notice(
                f"engine: {self._chosen}; {self._num_workers} worker processes trained a cohort in {pool:.2g} s, "
                f"this process alone in {block:.2g} s"
            )


def suggest_rows(server: ServerSide, num_selected: int) -> int:
    """Return the clients per block, so that their weights fit in the cache and heavy work gives every core a block.

    It depends on the machine, the model and the cohort, but neither on the number of workers nor on the number of runs
    that share the machine: those may change between runs, the result must not.
    """
    row_bytes = server.layout.num_params * server.variables["x"].element_size()
    rows = min(_MOST_ROWS, _cache_bytes() // row_bytes)
    rows = rows if rows >= _FEWEST_ROWS else 1
    samples = float(server.clients.sizes.mean()) * num_selected
    if samples * server.flops_per_sample > _HEAVY_FLOPS:
        rows = min(rows, max(1, -(-num_selected // num_processors())))
    return rows


def _cache_bytes() -> int:
    """Return the cache available to a block's weights: a quarter of a core's share, leaving room for other data."""
    found = []
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            size, kind, shared = ((index / name).read_text().strip() for name in ("size", "type", "shared_cpu_list"))
            if kind != "Instruction":
                found.append(int(size.removesuffix("K")) * 1024 // (4 * _count_cpus(shared)))
        except (OSError, ValueError):
            continue
    return max(found, default=_CACHE_BYTES)


def _count_cpus(text: str) -> int:
    """Count the processors in a list such as 0-3,8."""
    ends = [part.split("-") for part in text.split(",")]
    return sum(int(pair[-1]) - int(pair[0]) + 1 for pair in ends)
