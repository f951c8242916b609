"""Correlation of results with varied settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import frexp, fsum, ldexp, sqrt
from typing import Any

from fedge.report.groups import RunView, varied
from fedge.report.run_results import outcome
from fedge.report.statistics import Reached, to_target


@dataclass(frozen=True)
class Correlation:
    """Pearson's coefficient over `count` runs; None if the setting or the result is the same in all of them."""

    setting: str
    outcome: str
    coefficient: float | None
    count: int


@dataclass(frozen=True)
class Level:
    """The result of the runs that share one value of a non-numeric setting."""

    setting: str
    value: str
    outcome: str
    result: Reached


def pearson(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Return the linear correlation of two series; None if there are fewer than two values, or if one is constant."""
    if len(xs) != len(ys):
        raise ValueError(f"expected two series of equal length, got {len(xs)} and {len(ys)}")
    if len(xs) < 2 or len(set(xs)) == 1 or len(set(ys)) == 1:
        return None
    xs, ys = _scaled(xs), _scaled(ys)
    x_mean, y_mean = fsum(xs) / len(xs), fsum(ys) / len(ys)
    # scaled, because squares of bytes or FLOPs may overflow
    x_size, y_size = max(abs(x - x_mean) for x in xs), max(abs(y - y_mean) for y in ys)
    dx, dy = [(x - x_mean) / x_size for x in xs], [(y - y_mean) / y_size for y in ys]
    product = fsum(a * b for a, b in zip(dx, dy, strict=True))
    found = product / (sqrt(fsum(a * a for a in dx)) * sqrt(fsum(b * b for b in dy)))
    return max(-1.0, min(1.0, found))


def _scaled(values: Sequence[float]) -> list[float]:
    """Return values below 1 by an exact division: a difference of numbers near the largest is beyond any float."""
    _, exponent = frexp(max(map(abs, values)))
    return [ldexp(value, -exponent) for value in values]


def correlate(runs: Sequence[RunView], outcomes: Sequence[str]) -> list[Correlation]:
    """Correlate every varied setting that is a number, or a boolean (as 0 and 1), with every outcome.

    Each coefficient is over the runs that have both values: a run that missed the target has no cost to target.
    """
    found = []
    for setting, values in varied(runs).items():
        if not _numeric(values) or len({value for value in values if value is not None}) < 2:
            continue
        for name in outcomes:
            pairs = [
                (float(value), result)
                for value, run in zip(values, runs, strict=True)
                if value is not None and (result := outcome(run, name)) is not None
            ]
            xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
            found.append(Correlation(setting, name, pearson(xs, ys), len(pairs)))
    return found


def levels(runs: Sequence[RunView], outcomes: Sequence[str]) -> list[Level]:
    """Return the outcomes for each value of every varied non-numeric setting.

    A setting that divides the runs like an earlier one, such as an option of a single algorithm, is left out. A mean
    has an interval only if the runs with that value differ in the seed alone.
    """
    found, seen = [], []
    columns = varied(runs)
    for setting, values in columns.items():
        split = [list(map(str, values)).index(str(value)) for value in values]
        if _numeric(values) or split in seen:
            continue
        seen.append(split)
        for value in dict.fromkeys(map(str, values)):
            alike = [i for i, run in enumerate(runs) if str(values[i]) == value and run.summary is not None]
            mixed = any(column[i] != column[alike[0]] for column in columns.values() for i in alike)
            for name in outcomes:
                result = to_target([outcome(runs[i], name) for i in alike], mixed)
                found.append(Level(setting, value, name, result))
    return found


def _numeric(values: Sequence[Any]) -> bool:
    return all(value is None or isinstance(value, int | float) for value in values)
