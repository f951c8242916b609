"""Metrics by name: each is a struct of options that defines the sums and the value computed from them."""

import re
from collections.abc import Sequence
from typing import get_args

from fedge.core.errors import ConfigError
from fedge.core.fields import is_taken
from fedge.core.metric import WHERE, Metric
from fedge.metrics.included import F1, Auc, Perplexity, Rmse, Top5, TopK
from fedge.metrics.usermetric import UserMetric

MetricOptions = F1 | Auc | Top5 | TopK | Rmse | Perplexity | UserMetric
METRIC_KINDS: tuple[type[Metric], ...] = get_args(MetricOptions)
"""The kinds of metric; a user-defined one is chosen by `file.py:Name`."""
_NAME = re.compile("[a-z][a-z0-9_]{0,63}")


def check_names(metrics: Sequence[Metric]) -> None:
    """Raise ConfigError if a recorded name is invalid, duplicated or already used by another field."""
    names = [metric.recorded_as for metric in metrics]
    for name in names:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{WHERE}: expected a name of at most 64 letters, digits and _, got {name!r}; rename it")
        if is_taken(name):
            raise ConfigError(f"{WHERE}: {name!r} is the name of another recorded field; rename the metric")
        if names.count(name) > 1:
            raise ConfigError(f"{WHERE}: two metrics are recorded as {name!r}; drop or rename one of them")


def load_metrics(metrics: Sequence[Metric]) -> dict[str, Metric]:
    """Return metrics by recorded name, with those of users' files loaded."""
    return {metric.recorded_as: metric.load() if isinstance(metric, UserMetric) else metric for metric in metrics}


__all__ = ["METRIC_KINDS", "Metric", "MetricOptions", "check_names", "load_metrics"]
