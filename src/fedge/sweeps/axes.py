"""From an experiment file to the points of its grid.

A list is an axis if the setting itself does not accept a list, and so is a range: { start, stop, step } or
{ start, stop, num, log }. Axes are crossed in the order of the file; the last one varies fastest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fedge import config as configuration
from fedge.core.anchor import anchor
from fedge.core.errors import ConfigError, nearest
from fedge.core.keys import key
from fedge.core.schema import read, structs
from fedge.sweeps.options import Condition, Range, SweepOptions, When
from fedge.sweeps.settings import kinds_at, takes_fractions, takes_list, takes_number, value_at

Point = dict[str, Any]
"""Settings by their path."""

MOST_POINTS = 1_000_000
"""The most points that a grid may have."""

_HERE = Path()
_NOT_VARIED = ("name", "seed", "seeds")  # name is the sweep's name; every point is repeated for each seed


class Axis(NamedTuple):
    """Settings that vary together, and their values."""

    keys: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def find_points(raw: Mapping[str, Any], options: SweepOptions, base: Path = _HERE) -> list[Point]:
    """Return the points of a file's grid that will be run, in order. Raises ConfigError.

    Paths in conditions are relative to `base`.
    """
    axes = find_axes(raw, options)
    raw = configuration.change(raw, options.axes)
    excluded = [_conditions(raw, condition, "sweep.exclude", base) for condition in options.exclude]
    grid = prod(len(axis.rows) for axis in axes)
    if grid > MOST_POINTS:
        raise ConfigError(f"the axes make {grid:,} points, expected at most {MOST_POINTS:,}; remove values")
    points = [_merged(axes, rows) for rows in product(*(axis.rows for axis in axes))]
    for conditional in options.when:
        points = _crossed(points, conditional, raw, base)
    points = [point for point in points if not any(_hold(wanted, point, raw) for wanted in excluded)]
    if not points:
        raise ConfigError("sweep.exclude: excludes all points of the grid; remove conditions")
    return _subset(points, options)


def find_axes(raw: Mapping[str, Any], options: SweepOptions) -> list[Axis]:
    """Return the axes of a file. Zipped axes become one, at the position of the first."""
    raw = configuration.change(raw, options.axes)
    further = {path: _axis_values(values, path, raw, "sweep.axes") for path, values in options.axes.items()}
    single = dict(_walk(raw, raw, "")) | further
    together: dict[str, tuple[str, ...]] = {}
    for group in options.zip:
        _check_group(group, single, together)
        together |= dict.fromkeys(group, tuple(group))
    groups = dict.fromkeys(together.get(path, (path,)) for path in single)
    return [Axis(keys, list(zip(*(single[path] for path in keys), strict=True))) for keys in groups]


def seeds_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with several values of `seed` moved to `seeds`: they are repeats, not an axis."""
    values = _values(raw.get("seed"), "seed", raw)
    if values is None:
        return dict(raw)
    if "seeds" in raw:
        raise ConfigError("seed and seeds exclude each other; give one of them")
    return {**{name: value for name, value in raw.items() if name != "seed"}, "seeds": values}


def _walk(table: Mapping[str, Any], raw: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, list[Any]]]:
    for name, value in table.items():
        path = prefix + name
        if path in _NOT_VARIED or not isinstance(value, list | Mapping):
            continue
        kinds = kinds_at(raw, path)
        values = None if takes_list(kinds) and isinstance(value, list) else _values(value, path, raw)
        if values is not None:
            yield path, values
        elif isinstance(value, Mapping) and any(structs(kind) for kind in kinds):
            yield from _walk(value, raw, f"{path}.")


def _values(value: Any, path: str, raw: Mapping[str, Any]) -> list[Any] | None:
    """Return the values of an axis; None if the value is not an axis."""
    if isinstance(value, Range):
        found: list[Any] = value.values()
    elif isinstance(value, Mapping) and {"start", "stop"} & set(value) and takes_number(kinds_at(raw, path)):
        found = read(value, Range, path).values()
    elif isinstance(value, list):
        _check_differ(value, path)
        return value
    else:
        return None
    return found if takes_fractions(kinds_at(raw, path)) else list(dict.fromkeys(round(number) for number in found))


def _check_differ(values: Sequence[Any], path: str) -> None:
    if not values:
        raise ConfigError(f"{path}: expected at least one value, got an empty list")
    twice = [value for i, value in enumerate(values) if value in values[:i]]
    if twice:
        raise ConfigError(f"{path}: the values of an axis must differ, got {twice[0]!r} more than once")


def _axis_values(value: Any, path: str, raw: Mapping[str, Any], where: str) -> list[Any]:
    """Return the values of an axis given by its path. Raises ConfigError if it is not a valid axis."""
    if path in _NOT_VARIED:
        raise ConfigError(f"{where}: {path} cannot be an axis; several seeds are given as seeds = [1, 2, 3]")
    _check_known(raw, path, where)
    values = _values(value, path, raw)
    if values is None:
        raise ConfigError(f"{where}: {path}: expected a list of values or a range, got {value!r}")
    return values


def _check_known(raw: Mapping[str, Any], path: str, where: str) -> None:
    try:
        kinds_at(raw, path)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _check_group(group: Sequence[str], axes: Mapping[str, list[Any]], together: Mapping[str, object]) -> None:
    for path in group:
        if path not in axes:
            known = ", ".join(axes) or "none"
            raise ConfigError(f"sweep.zip: {path} is not an axis{nearest(path, axes)}; axes of this file: {known}")
        if path in together or group.count(path) > 1:
            raise ConfigError(f"sweep.zip: {path} is zipped more than once")
    lengths = {path: len(axes[path]) for path in group}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{path} has {length}" for path, length in lengths.items())
        raise ConfigError(f"sweep.zip: zipped axes must have the same number of values, but {told}")


def _merged(axes: Sequence[Axis], rows: Sequence[tuple[Any, ...]]) -> Point:
    return {
        path: value for axis, row in zip(axes, rows, strict=True) for path, value in zip(axis.keys, row, strict=True)
    }


def _crossed(points: Sequence[Point], conditional: When, raw: Mapping[str, Any], base: Path) -> list[Point]:
    """Return the points, crossed with a conditional axis where its condition holds."""
    path = conditional.key
    values = _axis_values(anchor({path: conditional.values}, base)[path], path, raw, "sweep.when")
    wanted = _conditions(raw, conditional.condition, "sweep.when", base)
    crossed: list[Point] = []
    for point in points:
        if not _hold(wanted, point, raw):
            crossed.append(point)
        elif path in point:
            raise ConfigError(f"sweep.when: {path} is an axis of the same points already; give it one set of values")
        else:
            crossed += [{**point, path: value} for value in values]
    return crossed


def _conditions(raw: Mapping[str, Any], condition: Condition, where: str, base: Path) -> dict[str, object]:
    """Return a condition as required values by setting."""
    try:
        wanted = configuration.assignments([condition] if isinstance(condition, str) else condition)
    except ConfigError:
        raise ConfigError(f"{where}: expected conditions like algorithm.name=scaffold, got {condition!r}") from None
    for path in wanted:
        _check_known(raw, path, where)
    return dict(anchor(wanted, base))


def _hold(wanted: Mapping[str, object], point: Point, raw: Mapping[str, Any]) -> bool:
    changed = configuration.change(raw, point)
    return all(value_at(changed, path) == value for path, value in wanted.items())


def _subset(points: list[Point], options: SweepOptions) -> list[Point]:
    """Return `options.fraction` of the points, in order. A point's draw does not depend on other points."""
    count = max(1, round(options.fraction * len(points)))
    draws = [key(options.seed, f"sweep/{msgspec.json.encode(point, order='sorted').decode()}") for point in points]
    chosen = set(sorted(range(len(points)), key=draws.__getitem__)[:count])
    return [point for i, point in enumerate(points) if i in chosen]
