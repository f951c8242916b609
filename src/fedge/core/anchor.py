"""Paths in settings: relative ones become absolute, so that a run can be resumed from anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedge.core.errors import ConfigError

PATHS = frozenset({"dir", "file", "folder", "test_file", "trace", "weights"})
"""Options that hold the path of a file or a folder, in whichever table they stand."""

_MAX_DEPTH = 30
_FREE = "options"  # what a user's own function is called with: nobody else knows what it means


def anchor(settings: Any, base: Path, key: str = "", depth: int = 0) -> Any:
    """Return settings in which paths, also those of `file.py:function`, are absolute; relative ones start at `base`.

    Keys may be paths of settings, `a.b`.
    """
    if depth > _MAX_DEPTH:
        raise ConfigError(f"{key}: expected tables nested at most {_MAX_DEPTH} deep, got more")
    if isinstance(settings, Mapping):
        return {
            name: inner
            if _FREE in str(name).split(".")
            else anchor(inner, base, f"{key}.{name}".lstrip("."), depth + 1)
            for name, inner in settings.items()
        }
    if isinstance(settings, list):
        return [anchor(inner, base, key, depth + 1) for inner in settings]
    if isinstance(settings, str) and settings and (".py:" in settings or key.rpartition(".")[2] in PATHS):
        try:
            return str((base / Path(settings).expanduser()).resolve())
        except (RuntimeError, ValueError, OSError) as error:  # no such home, a null character, a loop of links
            raise ConfigError(f"{key}: expected a path, got {settings!r} ({error})") from None
    return settings
