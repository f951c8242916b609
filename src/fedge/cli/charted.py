"""Check the metric of a chart before anything is trained or printed."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from fedge.core.errors import ConfigError, nearest
from fedge.core.fields import FIELDS, VALIDATION

if TYPE_CHECKING:
    from fedge.config import Config


def check_charted(y: str, own: Collection[str] = (), config: Config | None = None) -> None:
    """Raise a ConfigError unless records have the field y, or it is one of the runs' own metrics.

    With a configuration, also unless its runs measure it.
    """
    known = {field.name: field for field in FIELDS if field.role != "label"}
    if y in own:
        return
    if y not in known:
        recorded = ", ".join([*known, *own])
        raise ConfigError(f"--y: no round has {y!r}{nearest(y, [*known, *own])}; recorded: {recorded}")
    needed = re.search(r"with `([a-z_.]+)`", known[y].when)
    if config is None or needed is None:
        return
    value: Any = config
    for name in needed[1].split("."):
        value = getattr(value, name)
    if not value:
        example = "0.1" if needed[1] == "data.validation" else "true"
        raise ConfigError(f"--y: {y} is not measured; set {needed[1]}={example}")


def metrics_of(config: Config) -> list[str]:
    """Return the names under which runs of a configuration record their own metrics."""
    names = [metric.recorded_as for metric in config.evaluate.metrics]
    return names if config.data.validation is None else [*names, *(f"{VALIDATION}{name}" for name in names)]
