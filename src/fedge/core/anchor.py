"""Paths in settings: relative ones become absolute, so that a run can be resumed from anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedge.core.errors import ConfigError
from fedge.core.parts import is_reference

PATHS = frozenset({"dir", "file", "folder", "test_file", "trace", "weights"})
"""Options that hold the path of a file or a folder, in whichever table they stand."""

_MAX_DEPTH = 30
_FREE = "options"  # what a user's own function is called with: nobody else knows what it means


def anchor(settings: Any, base: Path) -> Any:
    """Return settings in which paths, also those of `file.py:name`, are absolute; relative ones start at `base`.

    Keys may be paths of settings, `a.b`.
    """

    def absolute(text: str, key: str) -> str:
        is_path = is_reference(text) and key != "name"  # but an experiment may be called so
        if not text or not (is_path or key.rpartition(".")[2] in PATHS):
            return text
        try:
            return str((base / Path(text).expanduser()).resolve())
        except (RuntimeError, ValueError, OSError) as error:  # no such home, a null character, a loop of links
            raise ConfigError(f"{key}: expected a path, got {text!r} ({error})") from None

    return map_texts(settings, absolute)


def map_texts(settings: Any, change: Callable[[str, str], str], key: str = "", depth: int = 0) -> Any:
    """Return settings with every text replaced by `change(text, key)`, but those that only a user's function knows."""
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
