"""The metrics of one run: their sums in an evaluation, checks of the sums that clients send, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite, nan
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from fedge.core.errors import TrainingError
from fedge.core.fields import OwnFields
from fedge.core.layout import Tree
from fedge.core.metric import WHERE, Metric, is_within
from fedge.core.metric_declaration import MetricDeclaration, declared_fields
from fedge.core.metric_trial import guarded, problem_of_forms, try_out
from fedge.core.registered import Task

_NOTHING: Mapping[str, Metric] = MappingProxyType({})


class _Tried(NamedTuple):
    """A metric and the lengths of its vectors."""

    metric: Metric
    lengths: Mapping[str, int]


class MetricSet:
    """Metrics that passed their trial. In the sums of an evaluation, their vectors are named `metric.vector`."""

    def __init__(
        self,
        metrics: Mapping[str, Metric] = _NOTHING,
        task: Task = "classes",
        num_outputs: int = 2,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Try all metrics, given by recorded name, on random outputs of this number and task.

        Raises ConfigError, which names the metric, if one cannot be used.
        """
        self._tried: dict[str, _Tried] = {}
        for name, metric in metrics.items():
            metric.check(task, num_outputs)
            self._tried[name] = _Tried(metric, try_out(name, metric, task, num_outputs, dtype))

    def __bool__(self) -> bool:
        return bool(self._tried)

    @property
    def lengths(self) -> dict[str, int]:
        """Length of each vector in the sums, by name."""
        return {f"{name}.{key}": n for name, (_, lengths) in self._tried.items() for key, n in lengths.items()}

    @property
    def declarations(self) -> tuple[MetricDeclaration, ...]:
        """The declaration of each metric, for readers of the run."""
        return tuple(metric.declare(name) for name, (metric, _) in self._tried.items())

    @property
    def fields(self) -> OwnFields:
        """The fields that the metrics add to a run's records."""
        return declared_fields(self.declarations)

    def count(self, outputs: Tensor, targets: Tensor) -> Tree:
        """Return the sums of all metrics over some samples; raises TrainingError if a metric fails."""
        found: Tree = {}
        for name, (metric, lengths) in self._tried.items():
            vectors = guarded(name, lambda metric=metric: metric.count(outputs, targets))  # type: ignore[misc]
            if problem := problem_of_forms(vectors, lengths):
                raise TrainingError(f"{WHERE}: {name}: {problem}")
            found |= {f"{name}.{key}": vectors[key].cpu() for key in lengths}
        return found

    def undefined(self) -> Tree:
        """Return the sums for outputs that are not finite, which cannot be counted."""
        return {name: torch.full((length,), nan, dtype=torch.float64) for name, length in self.lengths.items()}

    def values(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """Return the values of metrics that are defined for these sums.

        Raises TrainingError if a metric fails or leaves its range.
        """
        found = {}
        for name, (metric, _) in self._tried.items():
            value = self._value(name, sums)
            if isfinite(value):
                if not metric.contains(value):
                    raise TrainingError(f"{WHERE}: {name} is {value:g}, expected {metric.range}")
                found[name] = min(max(value, metric.low), metric.high)
        return found

    def problem(self, sums: Mapping[str, Tensor], count: float) -> str | None:
        """Return the reason for rejecting a client's vectors over `count` samples; None if they are accepted."""
        return next((found for name in self._tried if (found := self._problem(name, sums, count))), None)

    def _problem(self, name: str, sums: Mapping[str, Tensor], count: float) -> str | None:
        metric, lengths = self._tried[name]
        low, high = (count * limit for limit in metric.limits)
        for key, length in lengths.items():
            vector, said = sums[f"{name}.{key}"], f"its sum '{name}.{key}'"
            if vector.shape != (length,):
                return f"{said} has {len(vector)} numbers, expected {length}"
            if not bool(torch.isfinite(vector).all()):
                return f"{said} is not finite"
            least, most = float(vector.min()), float(vector.max())
            if not (is_within(least, low, high) and is_within(most, low, high)):
                return f"{said} is impossible: it has numbers from {least:g} to {most:g}, expected {low:g} to {high:g}"
        try:
            value = self._value(name, sums)
        except TrainingError as error:
            return f"its sums cannot be used: {error}"
        if abs(value) == inf or (isfinite(value) and not metric.contains(value)):
            return f"its sums are impossible: they give {name} = {value:g}, expected {metric.range}"
        return None

    def _value(self, name: str, sums: Mapping[str, Tensor]) -> float:
        """Return a metric's value; NaN if its sums are not finite."""
        metric, lengths = self._tried[name]
        own = {key: sums[f"{name}.{key}"] for key in lengths}
        if not all(bool(torch.isfinite(vector).all()) for vector in own.values()):
            return nan
        return guarded(name, lambda: float(metric.value(own)))


NO_METRICS = MetricSet()
"""The metrics of a run without `evaluate.metrics`."""
