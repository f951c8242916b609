"""Make relative paths in settings absolute, so that a run can be resumed from any directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedge.core.errors import ConfigError
from fedge.core.parts import is_reference

PATHS = frozenset({"dir", "file", "folder", "test_file", "trace", "weights"})
"""Options that hold the path of a file or folder, in any table."""

_MAX_DEPTH = 30
_FREE = "options"  # keyword arguments of a user's function: their meaning is unknown, so they stay unchanged


def anchor(settings: Any, base: Path) -> Any:
    """Return settings with all paths, including those in `file.py:name`, made absolute relative to `base`.

    Keys may be dotted paths such as `a.b`. Raises ConfigError for an invalid path.
    """

    def absolute(text: str, key: str) -> str:
        is_path = is_reference(text) and key != "name"  # the name of an experiment may look like a reference
        if not text or not (is_path or key.rpartition(".")[2] in PATHS):
            return text
        try:
            return str((base / Path(text).expanduser()).resolve())
        except (RuntimeError, ValueError, OSError) as error:  # unknown home, null character, symlink loop
            raise ConfigError(f"{key}: expected a path, got {text!r} ({error})") from None

    return map_texts(settings, absolute)


def map_texts(settings: Any, change: Callable[[str, str], str], key: str = "", depth: int = 0) -> Any:
    """Return settings with every string replaced by `change(text, key)`, except the options of users' functions."""
    if depth > _MAX_DEPTH:
        raise ConfigError(f"{key}: expected tables nested at most {_MAX_DEPTH} deep, got more")
    if isinstance(settings, Mapping):
        return {
            name: inner
            if _FREE in str(name).split(".")
            else map_texts(inner, change, f"{key}.{name}".lstrip("."), depth + 1)
            for name, inner in settings.items()
        }
    if isinstance(settings, list):
        return [map_texts(inner, change, key, depth + 1) for inner in settings]
    return change(settings, key) if isinstance(settings, str) else settings
