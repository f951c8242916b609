"""A metric that a user's own function returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from msgspec import Meta, field

from fedge.core.errors import ConfigError
from fedge.core.metric import WHERE, Metric
from fedge.core.parts import explain, origin_of


class UserMetric(Metric, tag=False, kw_only=True):
    """A metric of one's own: a class derived from `fedge.metrics.Metric`, or a function that returns such a metric.

    It is recorded under its name in snake case. Only a function has `options`; a class has those that it declares.
    """

    function: ClassVar[Callable[..., Any]]
    options: Annotated[dict[str, Any], Meta(description="What the function is called with, by name.")] = field(
        default_factory=dict
    )

    def load(self) -> Metric:
        """Return the metric that the function returns; a ConfigError if it returns none."""
        try:
            metric = self.function(**self.options)
        except Exception as error:  # whatever a user's own code may raise
            raise ConfigError(f"{WHERE}: {explain(error, self)}") from error
        if not isinstance(metric, Metric):
            raise ConfigError(
                f"{WHERE}: {origin_of(self).name} must return a metric, of a class derived from fedge.metrics.Metric; "
                f"got {type(metric).__name__}"
            )
        return metric
