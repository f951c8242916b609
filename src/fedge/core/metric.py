"""A metric: what is counted of a model's outputs as sums that add up over samples, and one number made of the sums.

Since the sums add up, a server can ask its clients for them: the mean of clients' F1 or AUC would be another number.
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
_MOST = torch.finfo(torch.float32).max  # that one sample may add: so the sums of many clients are finite
_SLACK = 1e-9  # of rounding, relative


class Metric(Options):
    """`count` gives the sums over some samples, `value` the number that all sums together stand for."""

    part = Part("metric", "fedge.metrics", "fedge.metrics")

    better: ClassVar[Better] = "higher"
    low: ClassVar[float] = -inf  # the least that it can be
    high: ClassVar[float] = inf
    percent: ClassVar[bool] = False  # shown as a percentage
    tasks: ClassVar[tuple[Task, ...]] = ("classes", "labels", "values")
    per_sample: ClassVar[tuple[float, float]] = (-inf, inf)
    """The least and the most that one sample adds to any number of the sums; a client that claims more is rejected."""

    @property
    def recorded_as(self) -> str:
        """The name of the recorded field: the metric's name, without the file that it is in, in snake case."""
        return snake_case((tag(type(self)) or type(self).__name__).rpartition(":")[2])

    def declare(self, name: str) -> MetricDeclaration:
        """Return what readers of a run have to know of it, where it is recorded under this name."""
        low, high = (end if isfinite(end) else None for end in (self.low, self.high))
        return MetricDeclaration(name, self.better, low, high, self.percent)

    def check(self, task: Task, num_outputs: int) -> None:
        """Raise a ConfigError if there is no such metric of these outputs."""
        if task not in self.tasks:
            raise ConfigError(
                f"{WHERE}: {self.recorded_as} is a metric of {' or '.join(self.tasks)}, but the data has {task} to "
                "predict; choose another metric"
            )

    def count(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return named float64 vectors that add up over samples, always of the same lengths.

        Outputs are `[n, num_outputs]` as the model gives them, such as logits. Targets are `[n]` of integers for
        classes, and `[n, num_outputs]` for labels (0 or 1) and values.
        """
        raise TypeError(f"{type(self).__name__} does not say what it counts")

    def value(self, sums: Mapping[str, Tensor]) -> float:
        """Return the metric for these sums; NaN where it is not defined, which is then not recorded."""
        raise TypeError(f"{type(self).__name__} does not say its value")

    def contains(self, value: float) -> bool:
        """Whether a value lies in the declared range, but for rounding; NaN does not."""
        return is_within(value, self.low, self.high)

    @property
    def range(self) -> str:
        """The declared range, for messages."""
        return f"a number from {self.low:g} to {self.high:g}"

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the most that one sample adds, both finite."""
        return max(self.per_sample[0], -_MOST), min(self.per_sample[1], _MOST)


def snake_case(name: str) -> str:
    """`BalancedAccuracy` becomes `balanced_accuracy`, and `AUC` becomes `auc`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def is_within(value: float, low: float, high: float) -> bool:
    """Whether a value lies in a range, but for rounding."""
    slack = _SLACK * max(1.0, abs(value))
    return low - slack <= value <= high + slack
