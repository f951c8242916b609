"""Which engine runs an experiment, and in blocks of which size."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import torch
from msgspec import Meta

from fedge.core import algorithm
from fedge.core.algorithm import Exchange, Info, Reply
from fedge.core.errors import ConfigError
from fedge.core.layout import Tree
from fedge.core.machine import num_processors, num_shared
from fedge.core.schema import Options
from fedge.engines.block import Block, Content, Workers
from fedge.engines.job import Job
from fedge.engines.kernels.assemble import Kernels, assemble
from fedge.engines.loop import Loop
from fedge.engines.pool import Pool
from fedge.engines.tasks import Here
from fedge.engines.wire import Wire

_CACHE_BYTES = 4 << 20  # if the system does not say
_MOST_ROWS = 64
_FEWEST_ROWS = 4  # a few large models side by side are slower than one at a time
_HEAVY_FLOPS = 2e7  # of an exchange: dividing it over the cores pays
_TRIALS = ("block", "pool", "pool", "block")
_WORTH_TRYING_S = 0.02  # an exchange that takes less is done before others have heard of it

Count = Annotated[int, Meta(ge=1)]
Notice = Callable[[str], None]


class Engine(Options, tag=False):
    """How clients are run; the result is the same to float rounding."""

    name: Annotated[
        Literal["auto", "loop", "wire", "block", "pool", "ray"],
        Meta(description="auto: blocks of clients where the model allows it, on worker processes where that is faster"),
    ] = "auto"
    workers: Annotated[Count | None, Meta(description="processes of pool and ray (as many as there are cores)")] = None
    rows: Annotated[
        Count | None, Meta(description="clients in a block (as the cache, the model and the cores suggest)")
    ] = None
    dtype: Annotated[Literal["float32", "float64"], Meta(description="precision of weights and gradients")] = "float32"
    device: Annotated[Literal["cpu", "cuda", "mps"], Meta(description="where clients compute")] = "cpu"
    matmul_precision: Annotated[
        Literal["highest", "high", "medium"], Meta(description="of products in float32: less than highest is faster")
    ] = "highest"

    @property
    def checked_device(self) -> str:
        """The device, if this machine has it."""
        has = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        if not has[self.device]:
            there = ", ".join(name for name, present in has.items() if present)
            raise ConfigError(f"engine.device: torch finds no {self.device} on this machine; it has {there}")
        if self.device == "mps" and self.dtype == "float64":
            raise ConfigError("engine.dtype: mps has no float64; use float32, or engine.device = cpu")
        return self.device


class Chosen(NamedTuple):
    """An engine, who does other tasks, and what there is to say about it."""

    engine: algorithm.Engine
    workers: Workers
    facts: Mapping[str, object]  # for the record
    close: Callable[[], None] = lambda: None


def choose(
    options: Engine,
    job: Job,
    num_selected: int,
    make_client_job: Callable[[], Job],
    rows: int | None,
    notice: Notice,
) -> Chosen:
    """The engine of an experiment, for cohorts of about so many clients. `rows` is what a resumed run had before."""
    num_rows = options.rows or rows or suggest_rows(job, num_selected)
    if options.name in ("loop", "wire"):
        engine = Loop(job) if options.name == "loop" else Wire(job, make_client_job)
        return Chosen(engine, Here(job, None, num_rows), {"engine": options.name})
    batched = assemble(job.network, job.probe())
    if isinstance(batched, str):
        notice(f"engine: clients run one at a time (loop), because {batched}")
        return Chosen(Loop(job), Here(job, None, num_rows), {"engine": "loop"})
    if not isinstance(batched, Kernels):
        notice(f"engine: {batched.path}")
    workers = options.workers or num_shared()
    facts = {"engine": options.name, "rows": num_rows, "path": batched.path}
    if options.name == "block" or (options.name == "auto" and (workers == 1 or options.device != "cpu")):
        return Chosen(Block(job, batched, num_rows), Here(job, batched, num_rows), {**facts, "engine": "block"})
    if options.name == "ray":
        from fedge.engines.ray import Ray  # an extra

        ray = Ray(job, num_rows, workers, notice)
        return Chosen(ray, ray, {**facts, "workers": workers}, ray.close)
    pool = Pool(job, batched, num_rows, workers, notice)
    facts["workers"] = workers
    if options.name == "pool":
        return Chosen(pool, pool, facts, pool.close)
    auto = Auto(job, Block(job, batched, num_rows), Here(job, batched, num_rows), pool, workers, notice)
    return Chosen(auto, auto, facts, pool.close)


class Auto:
    """`block` or `pool`, whichever is faster: both do some of the first exchanges, with the same result."""

    def __init__(self, job: Job, block: Block, here: Here, pool: Pool, num_workers: int, notice: Notice) -> None:
        self._works = job.algorithm.works
        self.num_rows, self.masks = block.num_rows, block.masks
        self._engines: dict[str, Block | Pool] = {"block": block, "pool": pool}
        self._here, self._pool, self._num_workers, self._notice = here, pool, num_workers, notice
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

    def map(self, kind: str, shared: Tree, items: Iterable[Content]) -> Generator[Content, None, None]:
        return self._pool.map(kind, shared, items) if self._chosen == "pool" else self._here.map(kind, shared, items)

    def _note(self, name: str, seconds: float) -> None:
        self._seconds[name].append(seconds)
        tried = sum(map(len, self._seconds.values()))
        if tried == 1 and seconds < _WORTH_TRYING_S:
            self._chosen = "block"
        elif tried == len(_TRIALS):
            block, pool = (min(self._seconds[each]) for each in ("block", "pool"))
            self._chosen = "block" if block <= pool else "pool"
            if self._chosen == "block":
                self._pool.close()
            self._notice(
                f"engine: {self._chosen}; {self._num_workers} worker processes trained a cohort in {pool:.2g} s, "
                f"this process alone in {block:.2g} s"
            )


def suggest_rows(job: Job, num_selected: int) -> int:
    """How many clients a block has: their weights fit in the cache, and heavy work gives every core a block.

    It hangs on the machine, the model and the cohort, but not on the workers, nor on how many runs of a sweep share the
    machine: those may change, the result may not.
    """
    row_bytes = job.network.layout.num_params * job.network.variables["x"].element_size()
    rows = min(_MOST_ROWS, _cache_bytes() // row_bytes)
    rows = rows if rows >= _FEWEST_ROWS else 1
    samples = float(job.clients.sizes.mean()) * num_selected
    if samples * job.flops_per_sample > _HEAVY_FLOPS:
        rows = min(rows, max(1, -(-num_selected // num_processors())))
    return rows


def _cache_bytes() -> int:
    """What a block may fill of the largest cache: a quarter of a core's share, as gradients and samples need theirs."""
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
    """In a list such as 0-3,8."""
    ends = [part.split("-") for part in text.split(",")]
    return sum(int(pair[-1]) - int(pair[0]) + 1 for pair in ends)
