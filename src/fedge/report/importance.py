"""Parameter importance: which of the varied settings explains how much of the variance of a result.

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
"""A setting with more different numbers than this is binned by rank, as in random sweeps."""

NUM_BINS = 3
FEW_RUNS = 3
"""Fewer runs per estimated effect than this make the shares rough."""

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class SettingShare:
    """The share of the variance that one setting explains, and how many values, or bins of values, it had."""

    setting: str
    share: float
    levels: int
    binned: bool = False


@dataclass(frozen=True)
class Importance:
    """The shares of the variance of a result over `runs` runs.

    `settings` are sorted, the most important first. `interactions` is what the main effects leave between settings;
    where no setting has two seeds it contains the variance between seeds too, and `seeds` is None. `shared` is what an
    unbalanced design cannot attribute; it may be negative. `follows` has the settings that have no share since another
    one determines them, and that one. `rough`: there are few runs for the number of effects.
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
    """Return how much of the variance of an outcome each varied setting explains, over all runs that have it.

    A ConfigError if nothing varies, or if there are too few runs to tell the settings apart.
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
    y /= np.abs(y).max() or 1.0  # squares of bytes or FLOPs might leave the range of floats
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
    """The variance that a setting explains beyond the other settings, but for those that only refine it."""
    own = factors[setting]
    others = [levels for key, levels in factors.items() if key != setting and not _determines(levels, own)]
    gained = _fit(others, y)[0] - _fit([*others, own], y)[0]
    levels = len(set(own))
    return SettingShare(setting, max(0.0, gained / total), levels, levels < len({str(value) for value in values}))


def _levels(values: Sequence[Any]) -> list[int]:
    """Return the number of each value among the different ones, or its bin of about equally many runs."""
    order = sorted_values(values)
    numbers = all(isinstance(value, int | float) for value in order if value is not None)
    place = {str(value): i for i, value in enumerate(order)}
    if len(order) <= MAX_LEVELS or not numbers:
        return [place[str(value)] for value in values]
    ranked = sorted(place[str(value)] for value in values)
    return [ranked.index(place[str(value)]) * NUM_BINS // len(values) for value in values]


def _independent(factors: Mapping[str, list[int]]) -> tuple[dict[str, list[int]], dict[str, str]]:
    """Return the settings that neither the algorithm nor an earlier setting determines; of the others, what does."""
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
    """Whether runs with the same level of the first have the same level of the second."""
    return len(set(zip(fine, coarse, strict=True))) == len(set(fine))


def _fit(factors: Iterable[Sequence[int]], y: Array) -> tuple[float, int]:
    """Return the sum of squares that the main effects of these factors leave, and how many effects were estimated."""
    columns = [np.ones(len(y))]
    for levels in factors:
        codes = np.array(levels)
        columns += [(codes == level).astype(np.float64) for level in sorted(set(levels))[1:]]
    design = np.stack(columns, axis=1)
    coefficients, _, rank, _ = np.linalg.lstsq(design, y, rcond=None)
    rest = y - design @ coefficients
    return float(rest @ rest), int(rank)


def _between_seeds(runs: Sequence[RunView], y: Array) -> float | None:
    """Return the sum of squares within groups that differ in the seed alone; None if no group has two runs."""
    place = {id(run): i for i, run in enumerate(runs)}
    groups = [[place[id(run)] for run in group.runs] for group in group_runs(runs)]
    if all(len(group) < 2 for group in groups):
        return None
    return fsum(float(((y[group] - y[group].mean()) ** 2).sum()) for group in groups)
