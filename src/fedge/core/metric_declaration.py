"""The fields of a run's metrics, as declared in its config.json."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf
from typing import Annotated, Literal

from msgspec import Meta, Struct

from fedge.core.fields import NUMBER, PERCENT, VALIDATION, Field


class MetricDeclaration(Struct, frozen=True):
    """A metric as stored in config.json: plain values, so that readers need not import a user's file."""

    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*\Z", max_length=64)]
    better: Literal["higher", "lower"]
    low: float | None = None  # None: no bound
    high: float | None = None
    percent: bool = False  # shown as a percentage


def declared_fields(declarations: Iterable[MetricDeclaration]) -> dict[str, Field]:
    """Return the fields of a run's metrics: two for each, on the test set and on the validation split."""
    found = {}
    for declared in declarations:
        field = Field(
            name=declared.name,
            title=declared.name.replace("_", " "),
            role="metric",
            meaning="of the global model on the pooled test set",
            units=PERCENT if declared.percent else NUMBER,
            better=declared.better,
            when="evaluated, with `evaluate.metrics`",
            low=-inf if declared.low is None else declared.low,
            high=inf if declared.high is None else declared.high,
        )
        found[field.name] = field
        name = f"{VALIDATION}{field.name}"
        found[name] = replace(
            field,
            name=name,
            title=f"validation {field.title}",
            meaning="of the global model on the validation split",
            when="evaluated, with `evaluate.metrics` and `data.validation`",
        )
    return found
