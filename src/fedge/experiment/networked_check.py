"""Check for settings that have no meaning on a real network."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fedge.config import Config, EngineOptions
from fedge.core.errors import ConfigError
from fedge.core.schema import Options, tag
from fedge.edge.clock import FixedClock

_EDGE_USED = frozenset({"max_void_rounds", "client_power_w", "compute_power_w"})
"""Settings of `[edge]` that a server run uses; all others describe a simulated world."""
_EDGE_ADVICE = {
    "deadline_s": "set net.deadline_s instead",
    "availability": "clients decide when to take part, by `fedge client --policy`; remove it",
    "dropout": "clients that disconnect are dropped by net.lease_s; remove it",
    "record": "a server run records what clients did in events.jsonl; remove it",
}
_ENGINE_IGNORED = ("name", "workers", "stall_s", "rows")


def check_networked(config: Config) -> list[str]:
    """Return notices about settings that `fedge server` ignores.

    Raises ConfigError that names every setting that a networked run does not support.
    """
    if problems := list(_refusals(config)):
        raise ConfigError(*problems)
    return list(_notices(config))


def _refusals(config: Config) -> Iterator[str]:
    if config.seeds is not None:
        yield "seeds: a server run has one seed; set seed instead, and start a server for each repeat"
    yield from _edge_refusals(config)
    if config.selection.needs_deadline:
        name = tag(type(config.selection))
        yield f'selection.name: {name} selects by simulated times; set selection.name = "uniform"'
    for quantity in config.schedule.timed:
        yield (
            f"schedule.{quantity}: it depends on simulated seconds, which a real network does not have; "
            "choose a schedule that depends on rounds"
        )
    if config.reduce.on_bad == "stop":
        yield 'reduce.on_bad: under fedge server a bad upload costs only itself; set it to "reject", or remove it'
    if config.trace is not None:
        yield "trace: it needs clients' data and models, which a server does not have; remove it"


def _edge_refusals(config: Config) -> Iterator[str]:
    edge = config.edge
    if not isinstance(edge, FixedClock):
        yield f'edge.clock: {tag(type(edge))} simulates a network, but a server run has a real one; remove "clock"'
        return
    for name in _changed(edge, FixedClock()):
        if name not in _EDGE_USED:
            advice = _EDGE_ADVICE.get(name, "a server run measures it; remove it")
            yield f"edge.{name}: it describes a simulated network; {advice}"


def _notices(config: Config) -> Iterator[str]:
    changed = _changed(config.engine, EngineOptions())
    ignored = [f"engine.{name}" for name in changed if name in _ENGINE_IGNORED]
    if ignored:
        yield f"{', '.join(ignored)}: ignored under fedge server, where each client runs itself"
    if "device" in changed:
        yield "engine.device: applies only to the server's own test set; each client computes on its CPU"
    if _changed(config.checkpoint, type(config.checkpoint)()):
        yield "checkpoint.every: ignored under fedge server, which commits every round"
    timed = [name for name in ("sim_seconds", "energy_j") if getattr(config.budget, name) is not None]
    for name in timed:
        yield f"budget.{name}: counts measured seconds, so two runs may end after different rounds"


def _changed(options: Options, default: Options) -> list[str]:
    """Return the names of the options that differ from the default."""
    names = [field.name for field in msgspec.structs.fields(type(default))]
    return [name for name in names if getattr(options, name) != getattr(default, name)]
