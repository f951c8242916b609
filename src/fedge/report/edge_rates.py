"""The basis of edge seconds and joules: the rates that a run assumed, or the fact that they were measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EDGE_COSTS = ("sim_seconds", "energy_j")
"""Fields whose values depend on these rates."""


def edge_rates(settings: Mapping[str, Any]) -> str | None:
    """Return `simulated with 20 Mbit/s down, ...` from a run's effective settings; None if they lack the rates."""
    edge = settings.get("edge")
    if not isinstance(edge, Mapping):
        return None
    watts = f"{_written(edge.get('compute_power_w'))} W computing, {_written(edge.get('client_power_w'))} W sending"
    if settings.get("clock") == "measured":
        return f"seconds measured; {watts}"
    if edge.get("clock") == "cells":
        hertz = edge.get("bandwidth_hz")
        shared = f"{hertz / 1e6:g} MHz" if isinstance(hertz, int | float) else "–"
        step = f"{_written(edge.get('seconds_per_sample_param'))} s a sample and parameter"
        return f"simulated with cells of {shared} each, {step}, {watts}"
    down, up, step = (_written(edge.get(name)) for name in ("down_mbps", "up_mbps", "seconds_per_step"))
    return f"simulated with {down} Mbit/s down, {up} Mbit/s up, {step} s a step, {watts}"


def edge_note(settings: Mapping[str, Any]) -> str | None:
    """Return the footnote of one run."""
    rates = edge_rates(settings)
    return None if rates is None else f"edge time, energy: {rates}"


def depends_on_edge(name: str) -> bool:
    """Whether a field, or a result derived from one, is an edge time or an energy."""
    return any(cost in name for cost in EDGE_COSTS)


def _written(value: Any) -> str:
    """Return a number, the range of per-client values, or a distribution as text."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key} {_written(part)}" for key, part in value.items() if key != "name")
        return f"{value.get('name')} ({inner})"
    numbers = [each for each in value if isinstance(each, int | float)] if isinstance(value, list) else []
    if numbers:
        return f"{_written(min(numbers))} to {_written(max(numbers))}"
    return f"{value:g}" if isinstance(value, int | float) else "–"
