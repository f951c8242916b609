"""Parameter importance: the share of a result's variance that each varied setting explains.

An analysis of variance over runs. Every varied setting is a factor, numbers included, so that an optimum in the middle
of a range counts as much as a trend. The share of a setting is the part of the total sum of squares that the main
effects lose when it is dropped from them (type II sums of squares). In a balanced grid these are the classical sums of
squares of the main effects, as in functional ANOVA, and together with interactions and seeds they add up to 1. In an
unbalanced design some variance cannot be attributed to one setting: that is `shared`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any

import numpy as np

from fedge.core.errors import ConfigError
from fedge.report.groups import RunView, group_runs, varied
from fedge.report.labels import ALGORITHM, sorted_values
from fedge.report.run_results import outcome

MAX_LEVELS = 6
"""A setting with more distinct numbers than this, as in random sweeps, is binned by rank."""

NUM_BINS = 3
FEW_RUNS = 3
"""With fewer runs per estimated effect than this, the shares are rough."""

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class SettingShare:
    """The share of the variance that one setting explains, and its number of values, or bins of values."""

    setting: str
    share: float
    levels: int
    binned: bool = False


@dataclass(frozen=True)
class Importance:
    """The shares of the variance of a result over `runs` runs.

    `settings` are sorted, the most important first. `interactions` is the variance between settings that the main
    effects leave; if no setting was run with two seeds, it includes the variance between seeds, and `seeds` is None.
    `shared` is the variance that an unbalanced design cannot attribute; it may be negative. `follows` maps each setting
    without a share to the setting that determines it. `rough`: there are few runs for the number of effects.
    """

    outcome: str
    runs: int
    settings: Sequence[SettingShare]
    interactions: float
    seeds: float | None
    shared: float
    rough: bool
    follows: Mapping[str, str] = field(default_factory=dict)


def measure_importance(runs: Sequence[RunView], name: str) -> Importance:
    """Return the share of an outcome's variance that each varied setting explains, over all runs that have it.

    Raises ConfigError if nothing varies, or if there are too few runs to separate the settings.
    """
    samples = [run for group in group_runs(runs) for run in group.runs]  # a repeated seed counts once
    known = [(run, value) for run in samples if (value := outcome(run, name)) is not None]
    found = [run for run, _ in known]
    columns = {key: values for key, values in varied(found).items() if len({str(value) for value in values}) > 1}
    if not columns:
        raise ConfigError(f"importance of settings for {name}: expected runs that differ in a setting, got none")
    factors, follows = _independent({key: _levels(values) for key, values in columns.items()})
    y = np.array([value for _, value in known], np.float64)
    y = np.ldexp(y, -int(np.frexp(np.abs(y).max())[1]))  # exact: the sum of numbers near the largest is no float
    y -= y.mean()
    y /= np.abs(y).max() or 1.0  # squares of bytes or FLOPs might overflow
    left, count = _fit(factors.values(), y)
    if len(found) <= count:
        raise ConfigError(
            f"importance of settings for {name}: {len(found)} runs are too few for {len(factors)} settings, expected "
            f"at least {count + 1}; add runs or seeds"
        )
    total = float(y @ y)
    if total == 0:
        raise ConfigError(f"importance of settings for {name}: all {len(found)} runs have the same value")
    shares = [_share(setting, factors, y, total, columns[setting]) for setting in factors]
    between = _between_seeds(found, y)
    interactions = (left - (between or 0.0)) / total
    seeds = None if between is None else between / total
    return Importance(
        outcome=name,
        runs=len(found),
        settings=sorted(shares, key=lambda one: -one.share),
        interactions=max(0.0, interactions),
        seeds=seeds,
        shared=1 - fsum([one.share for one in shares]) - left / total,
        rough=len(found) < FEW_RUNS * count,
        follows=follows,
    )


def _share(
    setting: str, factors: Mapping[str, Sequence[int]], y: Array, total: float, values: Sequence[Any]
) -> SettingShare:
    """Return the variance that a setting explains beyond all others, except those that only refine it."""
    own = factors[setting]
    others = [levels for key, levels in factors.items() if key != setting and not _determines(levels, own)]
    gained = _fit(others, y)[0] - _fit([*others, own], y)[0]
    levels = len(set(own))
    return SettingShare(setting, max(0.0, gained / total), levels, levels < len({str(value) for value in values}))


def _levels(values: Sequence[Any]) -> list[int]:
    """Return the index of each value among the distinct ones, or its bin of about equally many runs."""
    order = sorted_values(values)
    numbers = all(isinstance(value, int | float) for value in order if value is not None)
    place = {str(value): i for i, value in enumerate(order)}
    if len(order) <= MAX_LEVELS or not numbers:
        return [place[str(value)] for value in values]
    ranked = sorted(place[str(value)] for value in values)
    return [ranked.index(place[str(value)]) * NUM_BINS // len(values) for value in values]


def _independent(factors: Mapping[str, list[int]]) -> tuple[dict[str, list[int]], dict[str, str]]:
    """Return the settings that no earlier setting or algorithm determines, and what determines the others."""
    kept: dict[str, list[int]] = {}
    follows: dict[str, str] = {}
    for key in sorted(factors, key=lambda key: key != ALGORITHM):
        alike = (
            other
            for other, levels in kept.items()
            if _determines(levels, factors[key]) and (other == ALGORITHM or _determines(factors[key], levels))
        )
        if (other := next(alike, None)) is not None:
            follows[key] = other
        elif len(set(factors[key])) > 1:
            kept[key] = factors[key]
    return kept, follows


def _determines(fine: Sequence[int], coarse: Sequence[int]) -> bool:
    """Whether runs with equal levels of the first also have equal levels of the second."""
    return len(set(zip(fine, coarse, strict=True))) == len(set(fine))


def _fit(factors: Iterable[Sequence[int]], y: Array) -> tuple[float, int]:
    """Return the residual sum of squares of the main effects of these factors, and the number of effects estimated."""
    columns = [np.ones(len(y))]
    for levels in factors:
        codes = np.array(levels)
        columns += [(codes == level).astype(np.float64) for level in sorted(set(levels))[1:]]
    design = np.stack(columns, axis=1)
    coefficients, _, rank, _ = np.linalg.lstsq(design, y, rcond=None)
    rest = y - design @ coefficients
    return float(rest @ rest), int(rank)


def _between_seeds(runs: Sequence[RunView], y: Array) -> float | None:
    """Return the sum of squares within groups of runs that differ in the seed alone; None if no group has two runs."""
    place = {id(run): i for i, run in enumerate(runs)}
    groups = [[place[id(run)] for run in group.runs] for group in group_runs(runs)]
    if all(len(group) < 2 for group in groups):
        return None
    return fsum(float(((y[group] - y[group].mean()) ** 2).sum()) for group in groups)
