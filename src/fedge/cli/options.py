"""Options of components, described in the terms of an experiment file."""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Meta, Struct

from fedge.core.schema import structs, tag

USER_FUNCTION = "FILE.py:FUNCTION"
"""Shown as the name of a kind that is chosen by file and function."""

_WORDS: dict[object, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    Any: "value",
}
_BOUNDS = {"gt": "> {}", "ge": ">= {}", "lt": "< {}", "le": "<= {}"}


class Option(NamedTuple):
    """One key that a component understands."""

    name: str
    type: str
    default: str | None  # as TOML; None: required, or not set
    required: bool
    meaning: str


def title(kind: type[Struct]) -> str:
    """Return the name that experiment files use for this kind."""
    return tag(kind) or USER_FUNCTION


def summary(kind: type[Struct]) -> str:
    """Return the first line of the description."""
    return description(kind).partition("\n")[0]


def description(kind: type[Struct]) -> str:
    return inspect.getdoc(kind) or ""


def options(kind: type[Struct]) -> list[Option]:
    """Return all options of a kind."""
    return [
        Option(field.name, write_type(field.type), _default(field), field.required, _meaning(field.type))
        for field in msgspec.structs.fields(kind)
    ]


def write_type(kind: object) -> str:
    """`integer >= 1`, `"samples" | "uniform"`, `list of number > 0`, `table: iid, shards`"""
    return " | ".join(_alternatives(kind))


def _alternatives(kind: object, bounds: str = "") -> Iterator[str]:
    if get_origin(kind) is Annotated:
        inner, *notes = get_args(kind)
        found = [_bounds(note) for note in notes if isinstance(note, Meta)]
        yield from _alternatives(inner, ", ".join(filter(None, [*found, bounds])))
    elif get_origin(kind) in (Union, types.UnionType):
        for part in get_args(kind):
            if part is not type(None) and not structs(part):
                yield from _alternatives(part, bounds)
        if tables := structs(kind):
            yield _tables(tables)
    elif tables := structs(kind):
        yield _tables(tables)
    elif get_origin(kind) is Literal:
        yield from (json.dumps(value) for value in get_args(kind))
    elif get_origin(kind) is list:
        yield f"list of {write_type(get_args(kind)[0])}"
    elif get_origin(kind) is dict or kind is dict:
        yield "table"
    else:
        yield f"{_WORDS.get(kind, str(kind))} {bounds}".strip()


def _tables(kinds: list[type[Struct]]) -> str:
    names = [title(kind) for kind in kinds if tag(kind) or "name" in kind.__struct_fields__]
    return f"table: {', '.join(names)}" if names else "table"


def _bounds(meta: Meta) -> str:
    known = {name: getattr(meta, name) for name in _BOUNDS}
    return ", ".join(_BOUNDS[name].format(_number(value)) for name, value in known.items() if value is not None)


def _number(value: float) -> str:
    """`100000`, `1e9`, `1e-6`, `1,099,511,627,776`"""
    short = f"{value:g}"
    return re.sub(r"e\+?(-?)0*", r"e\1", short) if float(short) == value else f"{value:,}"


def _default(field: msgspec.structs.FieldInfo) -> str | None:
    value = field.default if field.default_factory is NODEFAULT else field.default_factory()
    if value is NODEFAULT or value is None:
        return None
    if isinstance(value, Struct):
        value = msgspec.to_builtins(value)
        value = value["name"] if set(value) == {"name"} else value
    return _toml(value)


def _toml(value: Any) -> str:
    """Return a value as inline TOML, as it follows an equals sign."""
    if isinstance(value, dict):
        inner = ", ".join(f"{key} = {_toml(part)}" for key, part in value.items() if part is not None)
        return f"{{ {inner} }}" if inner else "{}"
    return json.dumps(value)


def _meaning(kind: object) -> str:
    """Return the description found anywhere in the type; else the summary of its only struct."""
    tables = structs(kind)
    return next(_descriptions(kind), summary(tables[0]) if len(tables) == 1 else "")


def _descriptions(kind: object) -> Iterator[str]:
    parts = get_args(kind)
    yield from (part.description for part in parts if isinstance(part, Meta) and part.description)
    for part in parts:
        yield from _descriptions(part)
