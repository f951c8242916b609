"""A metric returned by a user-defined function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from msgspec import Meta, field

from fedge.core.errors import ConfigError
from fedge.core.metric import WHERE, Metric
from fedge.core.parts import explain, origin_of


class UserMetric(Metric, tag=False, kw_only=True):
    """A user-defined metric: a class derived from `fedge.metrics.Metric`, or a function that returns such a metric.

    It is recorded under its name in snake case. Only a function has `options`; a class declares its own.
    """

    function: ClassVar[Callable[..., Any]]
    options: Annotated[dict[str, Any], Meta(description="Keyword arguments of the function.")] = field(
        default_factory=dict
    )

    def load(self) -> Metric:
        """Return the metric that the function returns; raises ConfigError if it does not return one."""
        try:
            metric = self.function(**self.options)
        except Exception as error:  # a user's code may raise anything
            raise ConfigError(f"{WHERE}: {explain(error, self)}") from error
        if not isinstance(metric, Metric):
            raise ConfigError(
                f"{WHERE}: {origin_of(self).name} must return a metric, of a class derived from fedge.metrics.Metric; "
                f"got {type(metric).__name__}"
            )
        return metric
