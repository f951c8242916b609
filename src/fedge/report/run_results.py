"""A run's results, each a number, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from fedge.core.errors import ConfigError, nearest
from fedge.core.fields import SUMS, TO_TARGET, components, describe, is_to_target
from fedge.report.groups import RunView
from fedge.report.statistics import average

_OF_ROUNDS: dict[str, Callable[[Sequence[float]], float]] = {"mean_": average, "median_": median}


def outcome(run: RunView, name: str) -> float | None:
    """Return a finished run's value of a field; None if it was not measured or the target was not reached.

    The name is a field of the summary, a field of the records (its sum or last value, as declared), a sum of fields
    such as `bytes_to_target`, or a field of the records with the prefix `mean_` or `median_`.
    """
    if run.summary is None:
        return None
    for prefix, combine in _OF_ROUNDS.items():
        if name.startswith(prefix):
            values = _recorded(run, name.removeprefix(prefix))
            return float(combine(values)) if values else None
    parts = components(name)
    if is_to_target(name) or any(part in run.summary for part in parts):
        return _value(run.summary, parts)
    values = _recorded(run, name)
    if not values:
        return None
    return sum(values) if describe(name).total == "sum" else values[-1]


def check_outcome(runs: Sequence[RunView], name: str) -> None:
    """Raise a ConfigError that names the nearest result if no run has this one."""
    summaries = [run.summary or {} for run in runs]
    if is_to_target(name) and any(part in summary for summary in summaries for part in components(name)):
        return  # a cost to a target that no run reached is a result too
    if all(outcome(run, name) is None for run in runs):
        found = {key: None for summary in summaries for key, value in summary.items() if not isinstance(value, str)}
        sums = [total + end for total, parts in SUMS.items() for end in ("", TO_TARGET) if parts[0] + end in found]
        known = sorted([*found, *sums])
        raise ConfigError(f"no finished run has {name!r}{nearest(name, known)}; there are: {', '.join(known)}")


def _recorded(run: RunView, name: str) -> list[float]:
    """Return the values of the rounds that have one."""
    parts = components(name)
    return [value for record in run.rounds if (value := _value(record, parts)) is not None]


def _value(record: Mapping[str, Any], parts: Sequence[str]) -> float | None:
    values = [record.get(part) for part in parts]
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    return sum(numbers) if len(numbers) == len(parts) else None
