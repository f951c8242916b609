"""How to reproduce runs: their common settings as a file, and a command for each."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from fedge.core.effect import settings
from fedge.core.schema import without_none
from fedge.report.groups import RunView

_PLAIN = re.compile(r"(?!(?:true|false|inf|nan)$)[A-Za-z_][A-Za-z0-9_./:-]*")


def common(runs: Sequence[RunView]) -> dict[str, Any]:
    """Return the settings that all runs share, as a table for TOML."""
    found: dict[str, Any] = {}
    for path, value in _shared(runs).items():
        *tables, key = path.split(".")
        table = found
        for name in tables:
            table = table.setdefault(name, {})
        table[key] = value
    return found


def common_toml(runs: Sequence[RunView]) -> str:
    """Return the common settings as the text of an experiment file."""
    from tomli_w import dumps

    return dumps(common(runs))


def changes(runs: Sequence[RunView]) -> list[dict[str, Any]]:
    """Return the settings of each run beyond those that all share."""
    shared = _shared(runs)
    return [{path: value for path, value in _given(run).items() if path not in shared} for run in runs]


def commands(runs: Sequence[RunView], file: str) -> list[str]:
    """Return the commands that train each run again from the file of common settings."""
    return [" ".join(["fedge run", shlex.quote(file), *map(_setting, own.items())]) for own in changes(runs)]


def _setting(change: tuple[str, Any]) -> str:
    path, value = change
    return f"--set {shlex.quote(f'{path}={_value(value)}')}"


def _shared(runs: Sequence[RunView]) -> dict[str, Any]:
    first, *others = [_given(run) for run in runs]
    return {path: value for path, value in first.items() if all(path in one and one[path] == value for one in others)}


def _given(run: RunView) -> dict[str, Any]:
    """Return the settings without nulls: TOML has no null, and an absent setting means the same."""
    return {path: without_none(value) for path, value in settings(run.config) if value is not None and value != {}}


def _value(value: Any) -> str:
    """Return a value in the syntax of `--set`: a TOML value, or a plain word."""
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return _inline(value)


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_inline(inner)}" for key, inner in value.items()) + "}"
    return "[" + ", ".join(map(_inline, value)) + "]" if isinstance(value, list) else json.dumps(value)
