"""Readable names of points, also used for directories: `scaffold+learning_rate-0.1+option-II`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from fedge.core.parts import short_name

_LONGEST = 120  # characters; file systems take 255 bytes


def name_points(points: Sequence[Mapping[str, Any]], otherwise: str) -> list[str]:
    """Return a unique name for each point, made of its settings; `otherwise` for a point without settings."""
    titles = _titles(list(dict.fromkeys(path for point in points for path in point)))
    names = [_fit("+".join(_part(titles[path], value) for path, value in point.items())) for point in points]
    seen: Counter[str] = Counter()
    unique = []
    for name in (name or otherwise for name in names):
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name}+{seen[name]}")
    return unique


def _titles(paths: Sequence[str]) -> dict[str, str]:
    """Return the last part of each path, or all of it if others end alike; empty for `name`."""
    ends = Counter(path.rpartition(".")[2] for path in paths)
    found = {}
    for path in paths:
        end = path.rpartition(".")[2]
        found[path] = "" if end == "name" else end if ends[end] == 1 else path
    return found


def _part(title: str, value: Any) -> str:
    return "-".join(filter(None, [title, _written(value)]))


def _written(value: Any) -> str:
    if isinstance(value, Mapping):
        own = [_written(value["name"])] if "name" in value else []
        return ".".join([*own, *(_part(key, inner) for key, inner in value.items() if key != "name")])
    if isinstance(value, list):
        return ".".join(map(_written, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return re.sub(r"[^A-Za-z0-9._-]+", "-", short_name(str(value))).strip("-")


def _fit(name: str) -> str:
    """Return a valid directory name."""
    name = re.sub(r"^[^A-Za-z0-9]+", "", name)
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_LONGEST]}+{blake2b(name.encode(), digest_size=4).hexdigest()}"
