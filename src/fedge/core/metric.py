"""Metrics: sums over a model's outputs that add up over samples, and one number computed from the sums.

Because the sums add up, a server can ask clients for them. Averaging the clients' F1 or AUC would give another number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf, isfinite
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedge.core.errors import ConfigError
from fedge.core.metric_declaration import MetricDeclaration
from fedge.core.parts import Part
from fedge.core.registered import Task
from fedge.core.schema import Options, tag

Better = Literal["higher", "lower"]

WHERE = "evaluate.metrics"
_MOST = torch.finfo(torch.float32).max  # limit per sample, so that the sums of many clients are finite
_SLACK = 1e-9  # relative tolerance for rounding


class Metric(Options):
    """Base class of metrics: `count` returns the sums over some samples, `value` the metric computed from all sums."""

    part = Part("metric", "fedge.metrics", "fedge.metrics")

    better: ClassVar[Better] = "higher"
    low: ClassVar[float] = -inf  # lower bound of the value
    high: ClassVar[float] = inf
    percent: ClassVar[bool] = False  # shown as a percentage
    tasks: ClassVar[tuple[Task, ...]] = ("classes", "labels", "values")
    per_sample: ClassVar[tuple[float, float]] = (-inf, inf)
    """The minimum and maximum that one sample adds to any entry of the sums; claims beyond them are rejected."""

    @property
    def recorded_as(self) -> str:
        """The name of the recorded field: the metric's name in snake case, without its file."""
        return snake_case((tag(type(self)) or type(self).__name__).rpartition(":")[2])

    def declare(self, name: str) -> MetricDeclaration:
        """Return the declaration that readers of a run need, under the recorded name."""
        low, high = (end if isfinite(end) else None for end in (self.low, self.high))
        return MetricDeclaration(name, self.better, low, high, self.percent)

    def check(self, task: Task, num_outputs: int) -> None:
        """Raise ConfigError if the metric is not defined for these outputs."""
        if task not in self.tasks:
            raise ConfigError(
                f"{WHERE}: {self.recorded_as} is a metric for {' or '.join(self.tasks)}, but the task of the data is "
                f"{task}; choose another metric"
            )

    def count(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return named float64 vectors that add up over samples, always of the same lengths.

        Outputs are the raw outputs of the model, such as logits, of shape `[n, num_outputs]`. Targets are integers
        `[n]` for classes, and `[n, num_outputs]` for labels (0 or 1) and values.
        """
        raise TypeError(f"{type(self).__name__} must define count")

    def value(self, sums: Mapping[str, Tensor]) -> float:
        """Return the metric for these sums; NaN if it is undefined, in which case it is not recorded."""
        raise TypeError(f"{type(self).__name__} must define value")

    def contains(self, value: float) -> bool:
        """Whether a value lies in the declared range, up to rounding; NaN does not."""
        return is_within(value, self.low, self.high)

    @property
    def range(self) -> str:
        """The declared range, for messages."""
        return f"a number from {self.low:g} to {self.high:g}"

    @property
    def limits(self) -> tuple[float, float]:
        """Finite minimum and maximum that one sample may add."""
        return max(self.per_sample[0], -_MOST), min(self.per_sample[1], _MOST)


def snake_case(name: str) -> str:
    """`BalancedAccuracy` becomes `balanced_accuracy`, and `AUC` becomes `auc`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def is_within(value: float, low: float, high: float) -> bool:
    """Whether a value lies in a range, up to rounding."""
    slack = _SLACK * max(1.0, abs(value))
    return low - slack <= value <= high + slack
