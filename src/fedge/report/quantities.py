"""How recorded fields are called and in which unit a person reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Unit(NamedTuple):
    """A value of 3 * size is written as 3 of this unit."""

    name: str
    size: float


class Quantity(NamedTuple):
    """What a field measures, with the units it may be shown in, smallest first."""

    title: str
    units: tuple[Unit, ...]


BYTES = (Unit("MB", 1e6), Unit("GB", 1e9), Unit("TB", 1e12))
FLOPS = (Unit("GFLOPs", 1e9), Unit("TFLOPs", 1e12), Unit("PFLOPs", 1e15))
SECONDS = (Unit("s", 1.0), Unit("h", 3600.0))
JOULES = (Unit("J", 1.0), Unit("kJ", 1e3), Unit("MJ", 1e6))
PERCENT = (Unit("%", 0.01),)
NUMBER = (Unit("", 1.0),)

COSTS: Mapping[str, Quantity] = {
    "bytes_up": Quantity("upload", BYTES),
    "bytes_down": Quantity("download", BYTES),
    "bytes_backhaul": Quantity("backhaul", BYTES),
    "local_steps": Quantity("local steps", NUMBER),
    "flops": Quantity("compute", FLOPS),
    "sim_seconds": Quantity("edge time", SECONDS),
    "energy_j": Quantity("energy", JOULES),
}
"""What a round costs; a run has paid the sum of its rounds."""


def metric(field: str) -> Quantity:
    """What is measured of a model: accuracies are read in percent, all else as it is recorded."""
    return Quantity(field.replace("_", " "), PERCENT if "accuracy" in field else NUMBER)


def fitting(units: Sequence[Unit], largest: float) -> Unit:
    """The largest unit of which the largest value to be shown has at least two, or else the smallest."""
    return next((unit for unit in reversed(units) if largest >= 2 * unit.size), units[0])


def titled(title: str, unit: Unit) -> str:
    """`upload (MB)`, or the title alone where there is no unit."""
    return f"{title} ({unit.name})" if unit.name else title
