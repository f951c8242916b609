"""The settings of groups side by side: those that differ, or all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from fedge.core.effect import settings
from fedge.report.groups import RunGroup, varied
from fedge.report.tables import TableCells

WhichSettings = Literal["differ", "all"]
_OF_RUNS = ("name", "seed", "seeds", "clock")


class SettingValues(NamedTuple):
    """A setting and its value in each group; None where it is not set."""

    setting: str
    values: Sequence[Any]


def differing_settings(groups: Sequence[RunGroup]) -> list[SettingValues]:
    """Return the settings that affect results and differ between groups."""
    return [SettingValues(name, values) for name, values in varied([group.runs[0] for group in groups]).items()]


def equal_settings(groups: Sequence[RunGroup]) -> list[SettingValues]:
    """Return the settings that affect results and are equal in all groups."""
    differing = {one.setting for one in differing_settings(groups)}
    own = dict(settings(groups[0].runs[0].effective))
    names = [name for name in own if name not in differing and name not in _OF_RUNS]
    return [SettingValues(name, [own[name]] * len(groups)) for name in names]


def settings_table(groups: Sequence[RunGroup], which: WhichSettings) -> TableCells:
    """Return a row for each setting and a column for each group."""
    differing, equal = differing_settings(groups), equal_settings(groups)
    shown = [*differing, *equal] if which == "all" else differing
    rows = [
        [one.setting, *("not set" if value is None else write_value(value) for value in one.values)] for one in shown
    ]
    if which == "all":
        note = f"the first {len(differing)} differ between groups, {len(equal)} are equal"
    else:
        note = f"{len(equal)} more settings are equal in all groups"
    title = "All settings" if which == "all" else "Settings that differ"
    return TableCells(title, ["setting", *(group.label for group in groups)], rows, [note])


def write_value(value: Any) -> str:
    """Return a setting or a tag as text; values other than text as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
