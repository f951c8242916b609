"""The built-in metrics, each defined by its sums and the value computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, inf, nan, sqrt
from typing import Annotated, ClassVar

import torch
from msgspec import Meta
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from fedge.core.errors import ConfigError
from fedge.core.metric import WHERE, Better, Metric
from fedge.core.registered import Task

_LOG_ODDS = 20.0  # scores beyond this are practically certain and share a bin


class F1(Metric, tag="f1"):
    """Macro F1: the mean over classes of 2 TP/(2 TP + FP + FN).

    For classes, the most likely one is predicted; for labels, each with a probability above 1/2. Classes that are
    neither predicted nor true are left out.
    """

    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0
    tasks: ClassVar[tuple[Task, ...]] = ("classes", "labels")
    per_sample: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def count(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        true = _as_labels(outputs, targets)
        predicted = outputs > 0 if targets.dim() == 2 else _as_labels(outputs, outputs.argmax(-1))
        return {"hits": _total(true & predicted), "predicted": _total(predicted), "true": _total(true)}

    def value(self, sums: Mapping[str, Tensor]) -> float:
        both = sums["predicted"] + sums["true"]
        there = both > 0
        return float((2 * sums["hits"][there] / both[there]).mean()) if bool(there.any()) else nan


class Auc(Metric, tag="auc"):
    """Area under the ROC curve: the probability that a positive sample scores higher than a negative one.

    Ties count half. With two classes, the second is positive. With more classes, and with labels, it is the mean of
    one-vs-rest over those that have positive and negative samples. Scores are log-odds, counted in a histogram: the
    error is at most half the share of pairs whose samples fall into the same bin.
    """

    bins: Annotated[int, Meta(ge=2, le=100_000, description="bins of the histogram, from log-odds -20 to 20")] = 500

    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0
    tasks: ClassVar[tuple[Task, ...]] = ("classes", "labels")
    per_sample: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def count(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        true = _as_labels(outputs, targets)
        scores = outputs.double() if targets.dim() == 2 else _log_odds(outputs.double())
        if targets.dim() == 1 and outputs.shape[-1] == 2:
            true, scores = true[:, 1:], scores[:, 1:]
        places = ((scores / _LOG_ODDS + 1) / 2 * self.bins).floor().clamp(0, self.bins - 1).long()
        places += self.bins * torch.arange(scores.shape[-1], device=places.device)
        length = self.bins * scores.shape[-1]
        return {
            "positive": torch.bincount(places[true], minlength=length).double(),
            "negative": torch.bincount(places[~true], minlength=length).double(),
        }

    def value(self, sums: Mapping[str, Tensor]) -> float:
        positive, negative = (sums[name].view(-1, self.bins) for name in ("positive", "negative"))
        below = negative.cumsum(-1) - negative
        pairs = positive.sum(-1) * negative.sum(-1)
        there = pairs > 0
        areas = (positive * (below + negative / 2)).sum(-1)[there] / pairs[there]
        return float(areas.mean()) if bool(there.any()) else nan


class TopK(Metric, tag="top"):
    """Top-k accuracy: how often the true class is among the k most likely; recorded as `top3` for k = 3."""

    k: Annotated[int, Meta(ge=1, description="number of most likely classes to consider")]

    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0
    percent: ClassVar[bool] = True
    tasks: ClassVar[tuple[Task, ...]] = ("classes",)
    per_sample: ClassVar[tuple[float, float]] = (0.0, 1.0)

    @property
    def recorded_as(self) -> str:
        return f"top{self.k}"

    def check(self, task: Task, num_outputs: int) -> None:
        super().check(task, num_outputs)
        if self.k >= num_outputs:
            raise ConfigError(
                f"{WHERE}: {self.recorded_as} considers {self.k} of {num_outputs} classes, so it is always 1; expected "
                f'fewer than {num_outputs}: {{ name = "top", k = {max(1, num_outputs // 2)} }}'
            )

    def count(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        own, places = outputs.gather(-1, targets[:, None]), torch.arange(outputs.shape[-1], device=outputs.device)
        ahead = (outputs > own) | ((outputs == own) & (places < targets[:, None]))  # ties go to the first
        return {"hits": _number((ahead.sum(-1) < self.k).sum()), "samples": _number(len(targets))}

    def value(self, sums: Mapping[str, Tensor]) -> float:
        return _mean(sums, "hits")


class Top5(TopK, tag="top5"):
    """Top-5 accuracy: how often the true class is among the 5 most likely."""

    k: Annotated[int, Meta(ge=5, le=5, description="number of most likely classes to consider")] = 5


class Rmse(Metric, tag="rmse"):
    """Root mean squared error over all predicted values."""

    better: ClassVar[Better] = "lower"
    low: ClassVar[float] = 0.0
    tasks: ClassVar[tuple[Task, ...]] = ("values",)
    per_sample: ClassVar[tuple[float, float]] = (0.0, inf)

    def count(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        squares = (outputs.double() - targets.double()) ** 2
        return {"squares": _number(squares.mean(-1).sum()), "samples": _number(len(targets))}

    def value(self, sums: Mapping[str, Tensor]) -> float:
        return sqrt(_mean(sums, "squares"))


class Perplexity(Metric, tag="perplexity"):
    """Perplexity: exp of the mean cross-entropy, the equivalent number of equally likely classes."""

    better: ClassVar[Better] = "lower"
    low: ClassVar[float] = 1.0
    tasks: ClassVar[tuple[Task, ...]] = ("classes",)
    per_sample: ClassVar[tuple[float, float]] = (0.0, inf)

    def count(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {
            "loss": _number(cross_entropy(outputs.double(), targets, reduction="sum")),
            "samples": _number(len(targets)),
        }

    def value(self, sums: Mapping[str, Tensor]) -> float:
        mean = _mean(sums, "loss")
        return exp(mean) if mean < 700 else nan  # beyond this, exp overflows float64


def _as_labels(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return which outputs are true for each sample, one-hot for classes."""
    return targets > 0.5 if targets.dim() == 2 else one_hot(targets, outputs.shape[-1]).bool()


def _log_odds(logits: Tensor) -> Tensor:
    """Return log p/(1 - p) of each class."""
    logits = logits - logits.logsumexp(-1, keepdim=True)
    return logits - torch.log(-torch.expm1(logits))


def _total(there: Tensor) -> Tensor:
    return there.sum(0).double()


def _number(value: Tensor | int) -> Tensor:
    return torch.as_tensor(value).double().reshape(1)


def _mean(sums: Mapping[str, Tensor], name: str) -> float:
    """Return a sum divided by the number of samples; NaN if there are none."""
    samples = float(sums["samples"])
    return float(sums[name]) / samples if samples > 0 else nan
