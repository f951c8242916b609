"""A metric that a user's own file defines."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from fedge.core.errors import ConfigError
from fedge.core.metric import WHERE, Metric, snake_case
from fedge.core.schema import show
from fedge.core.userfile import describe, load_function


class UserMetric(Metric, tag=False, kw_only=True):
    """A subclass of `fedge.metrics.Metric` in a file of one's own, or a function that returns such a metric.

    It is recorded under its name in snake case.
    """

    name: Annotated[str, Meta(description="The class or function, as path/to/file.py:Name.")]
    options: Annotated[dict[str, Any], Meta(description="What it is called with, by name.")] = field(
        default_factory=dict
    )

    @property
    def recorded_as(self) -> str:
        return snake_case(self.name.rpartition(":")[2])

    def load(self) -> Metric:
        """Return the metric that the file defines; a ConfigError if there is none."""
        make = load_function(self.name, WHERE)
        try:
            metric = make(**self.options)
        except Exception as error:  # whatever a user's own code may raise
            raise ConfigError(f"{WHERE}: {self.name} failed: {describe(error, self.name)}") from error
        if not isinstance(metric, Metric):
            raise ConfigError(
                f"{WHERE}: {self.name} must be a subclass of fedge.metrics.Metric or return such a metric, got "
                f"{show(metric)}"
            )
        return metric
