"""The settings of an experiment and the types they accept, derived from its option structs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from fedge.config import Config
from fedge.core.advice import takes
from fedge.core.errors import ConfigError
from fedge.core.schema import choose, fields_of, structs, tag, unknown_key


def kinds_at(raw: Mapping[str, Any], path: str) -> list[Any]:
    """Return the types of the setting at a path, given the names chosen along it. Raises ConfigError if unknown."""
    found: list[Any] = [Config]
    table: Any = raw
    done: list[str] = []
    for key in path.split("."):
        if any(takes(kind, Any, dict) for kind in found):  # it accepts any key
            return [Any]
        tables = _chosen([inner for kind in found for inner in structs(kind)], table)
        known = {name: kind for inner in tables for name, kind in _fields(inner)}
        if key not in known:
            raise ConfigError(unknown_key(key, ".".join(done), known))
        found = [kind for inner in tables for name, kind in _fields(inner) if name == key]
        table = table.get(key) if isinstance(table, Mapping) else None
        done.append(key)
    return found


def value_at(raw: Mapping[str, Any], path: str) -> Any:
    """Return the value of a setting, or its default; for a table with a name, the name."""
    value = _find(raw, path.split("."))
    return value["name"] if isinstance(value, Mapping) and "name" in value else value


def takes_list(kinds: Iterable[Any]) -> bool:
    """Return whether a list can be a value of the setting."""
    return any(takes(kind, Any, list) for kind in kinds)


def takes_number(kinds: Iterable[Any]) -> bool:
    return any(takes(kind, int, float, Any) for kind in kinds)


def takes_fractions(kinds: Iterable[Any]) -> bool:
    """Return whether the setting accepts numbers that are not whole."""
    return any(takes(kind, float, Any) for kind in kinds)


def _fields(kind: type[Struct]) -> list[tuple[str, Any]]:
    own = [(field.name, field.type) for field in fields_of(kind)]
    return own if tag(kind) is None else [("name", str), *own]


def _chosen(kinds: list[type[Struct]], table: Any) -> list[type[Struct]]:
    """Return the structs selected by the name in a table; several if the name is varied, all if it is unknown."""
    name = table.get("name") if isinstance(table, Mapping) else table
    names = name if isinstance(name, list) else [name]
    return [found for each in names if isinstance(each, str) for found in _named(each, kinds)] or kinds


def _named(name: str, kinds: list[type[Struct]]) -> list[type[Struct]]:
    try:
        return [choose(name, kinds, "name")]
    except ConfigError:  # reported later by the point that has it
        return []


def _find(raw: Mapping[str, Any], path: Sequence[str]) -> Any:
    *tables, key = path
    table = _find(raw, tables) if tables else raw
    if isinstance(table, str):
        table = {"name": table}
    if isinstance(table, Mapping) and key in table:
        return table[key]
    parents = kinds_at(raw, ".".join(tables)) if tables else [Config]
    kinds = _chosen([inner for kind in parents for inner in structs(kind)], table)
    fields = (field for kind in kinds for field in fields_of(kind) if field.name == key)
    defaults = (field.default for field in fields if field.default is not msgspec.NODEFAULT)
    return msgspec.to_builtins(next(defaults, None))
