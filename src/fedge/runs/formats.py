"""Older formats of config.json: defaults and meanings of settings that have changed since.

A new format adds a row here for every such change, so that an older run resumes with the values it was made with, or
is refused. A row of `VALUES` fills in a setting that the older format did not have. A row of `MEANINGS` describes a
change that no value of a current setting can express.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from fedge.core.errors import RunError

FORMAT = 2
"""The current format of config.json."""

Settings = Mapping[str, Any]


class OlderValue(NamedTuple):
    """The value of a setting up to a format, for runs whose config.json lacks it."""

    format: int  # the last format for which this holds
    setting: str
    value: Callable[[Settings], Any | UnsetType]  # given all settings; UNSET if it does not apply


class OlderMeaning(NamedTuple):
    """The meaning of a setting up to a format."""

    format: int
    setting: str
    applies: Callable[[Settings], bool]
    meaning: str


def _rounding(config: Settings) -> str | UnsetType:
    """A fraction of clients was rounded up with cells and down without."""
    if _at(config, "selection.count") is not None:
        return UNSET
    return "up" if _at(config, "edge.clock") == "cells" else "down"


def _measured_those_who_trained(config: Settings) -> bool:
    return bool(_at(config, "evaluate.user_accuracy")) and _at(config, "evaluate.users") == "selected"


def _steps(config: Settings) -> bool:
    rules = config.get("schedule")
    return isinstance(rules, Mapping) and any(_at(rules, f"{quantity}.name") == "step" for quantity in rules)


def _draws_codes(config: Settings) -> bool:
    codec = config.get("codec")
    stages = [stage for way in codec.values() if isinstance(way, list) for stage in way] if codec else []
    return any(str(stage).startswith("qsgd") for stage in stages)


def _unnormalised(config: Settings) -> bool | UnsetType:
    return False if _at(config, "data.name") == "table" else UNSET


def _of(algorithm: str, value: str) -> Callable[[Settings], str | UnsetType]:
    """Return a function that gives the value if this is the algorithm, else UNSET."""
    return lambda config: value if _at(config, "algorithm.name") == algorithm else UNSET


VALUES: tuple[OlderValue, ...] = (
    OlderValue(1, "selection.rounding", _rounding),
    OlderValue(1, "algorithm.loss", _of("dynavg_loss", "first")),
    OlderValue(1, "algorithm.start", _of("pfedme", "w")),
    OlderValue(1, "data.normalise", _unnormalised),
)

MEANINGS: tuple[OlderMeaning, ...] = (
    OlderMeaning(
        1, "evaluate.users", _measured_those_who_trained, "selected users were the cohort that had just trained"
    ),
    OlderMeaning(1, "schedule", _steps, "step schedules used the test set"),
    OlderMeaning(
        1, "algorithm.name", lambda config: _at(config, "algorithm.name") == "dynavg", "dynavg charged silent clients"
    ),
    OlderMeaning(1, "cluster", lambda config: config.get("cluster") is not None, "clusters asked unavailable clients"),
    OlderMeaning(1, "codec", _draws_codes, "works of one round shared the draws of qsgd"),
)


def upgrade(config: Settings, format: int) -> dict[str, Any]:
    """Return settings of an older format with the values that it implied filled in."""
    found = dict(config)
    for row in VALUES:
        table, _, key = row.setting.rpartition(".")
        inner = _at(found, table) if table else found
        if format > row.format or not isinstance(inner, Mapping) or key in inner:
            continue
        if (value := row.value(found)) is not UNSET:
            found = _with(found, row.setting.split("."), value)
    return found


def check_meanings(where: str, config: Settings, format: int, version: str) -> None:
    """Raise a RunError that names the setting if a run of an older format cannot be resumed with the same meaning."""
    for row in MEANINGS:
        if format <= row.format and row.applies(config):
            raise RunError(
                f"{where} has format {format} and cannot be resumed: the meaning of {row.setting} has changed since "
                f"(then, {row.meaning}); start a new run, or resume it with fedge {version}"
            )


def _at(config: Settings, path: str) -> Any:
    found: Any = config
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _with(config: Settings, keys: list[str], value: Any) -> dict[str, Any]:
    key, *rest = keys
    return {**config, key: _with(config[key], rest, value) if rest else value}
