"""Choose the engine of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from fedge.client.client_side import ClientSide
from fedge.config import EngineOptions
from fedge.core.drive import Engine
from fedge.core.errors import ConfigError
from fedge.core.machine import num_shared
from fedge.engines.auto import Auto, Notice, suggest_rows
from fedge.engines.block import Block
from fedge.engines.both_sides import BothSides
from fedge.engines.kernels.assemble import Kernels, assemble
from fedge.engines.loop import Loop
from fedge.engines.pool import Pool
from fedge.engines.wire import Wire


class Chosen(NamedTuple):
    """An engine and facts about it."""

    engine: Engine
    facts: Mapping[str, object]  # recorded in environment.json
    close: Callable[[], None] = lambda: None


def choose(
    options: EngineOptions,
    sides: BothSides,
    num_selected: int,
    rows: int | None,
    notice: Notice,
    rebuild: Callable[[], ClientSide] | None = None,
) -> Chosen:
    """Return the engine for cohorts of about `num_selected` clients. `rows` is the block size of a resumed run.

    `rebuild` builds a separate clients' side, for the engine in which only bytes pass between the sides.
    """
    num_rows = options.rows or rows or suggest_rows(sides.server, num_selected)
    if options.name == "loop":
        return Chosen(Loop(sides), {"engine": "loop"})
    if options.name == "wire":
        return Chosen(Wire(sides._replace(clients=rebuild()) if rebuild else sides), {"engine": "wire"})
    batched = assemble(sides.clients.network, sides.clients.probe())
    if isinstance(batched, str):
        notice(f"engine: clients run one at a time (loop), because {batched}")
        return Chosen(Loop(sides), {"engine": "loop"})
    if not isinstance(batched, Kernels):
        notice(f"engine: {batched.path}")
    workers = options.workers or num_shared()
    facts = {"engine": options.name, "rows": num_rows, "path": batched.path}
    if options.name == "block" or (options.name == "auto" and (workers == 1 or options.device != "cpu")):
        return Chosen(Block(sides, batched, num_rows), {**facts, "engine": "block"})
    if options.name == "ray":
        from fedge.engines.ray import Ray  # an optional extra

        ray = Ray(sides, num_rows, workers, notice, options.stall_s)
        return Chosen(ray, {**facts, "workers": workers}, ray.close)
    pool = Pool(sides, batched, num_rows, workers, notice, options.stall_s)
    facts["workers"] = workers
    if options.name == "pool":
        return Chosen(pool, facts, pool.close)
    return Chosen(Auto(sides, Block(sides, batched, num_rows), pool, workers, notice), facts, pool.close)


def check_device(options: EngineOptions) -> str:
    """Return the device that clients compute on. Raises ConfigError if this machine does not have it."""
    has = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not has[options.device]:
        there = ", ".join(name for name, present in has.items() if present)
        raise ConfigError(f"engine.device: torch finds no {options.device} on this machine; available: {there}")
    if options.device == "mps" and options.dtype == "float64":
        raise ConfigError("engine.dtype: mps has no float64; use float32, or engine.device = cpu")
    return options.device
