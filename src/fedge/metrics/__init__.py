"""Metrics by name: each a struct of options that says what is counted, and what the sums stand for."""

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
"""The kinds of metric; a user's own is chosen by `file.py:Name`."""
_NAME = re.compile("[a-z][a-z0-9_]{0,63}")


def check_names(metrics: Sequence[Metric]) -> None:
    """Raise a ConfigError if two metrics are recorded under one name, or one under that of another field."""
    names = [metric.recorded_as for metric in metrics]
    for name in names:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{WHERE}: expected a name of at most 64 letters, digits and _, got {name!r}; rename it")
        if is_taken(name):
            raise ConfigError(f"{WHERE}: {name!r} is the name of another recorded field; give the metric another name")
        if names.count(name) > 1:
            raise ConfigError(f"{WHERE}: two metrics are recorded as {name!r}; leave one of them out, or rename it")


def load_metrics(metrics: Sequence[Metric]) -> dict[str, Metric]:
    """Return metrics by the names that they are recorded under, with those of users' files loaded."""
    return {metric.recorded_as: metric.load() if isinstance(metric, UserMetric) else metric for metric in metrics}


__all__ = ["METRIC_KINDS", "Metric", "MetricOptions", "check_names", "load_metrics"]
