"""Data files: where they are looked for, and whether they are what was published."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from hashlib import md5
from itertools import product
from pathlib import Path

from fedge.core.errors import DataError


def data_dir(option: str | None) -> Path:
    """The option, else the environment variable FEDGE_DATA, else the user's cache directory."""
    chosen = option or os.environ.get("FEDGE_DATA")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fedge"


def find_file(folders: Sequence[Path], names: Iterable[str]) -> Path | None:
    """The first of these names that is a file in one of the folders, the first folder first."""
    paths = (folder / name for folder, name in product(folders, names))
    return next((path for path in paths if path.is_file()), None)


def read_checked(path: Path, expected: str) -> bytes:
    """The bytes of a file whose MD5 is as published."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check its permissions") from error
    found = md5(content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise DataError(
            f"{path} is truncated or corrupt: expected MD5 {expected}, got {found} ({len(content)} bytes); "
            "delete it and get it again"
        )
    return content
