"""Hostile values and texts, for all code that reads or prints user input."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from math import inf, nextafter
from typing import Any

import msgspec

from fedge.algorithms import ALGORITHMS
from fedge.config import Config
from fedge.core.schema import item, structs, tag

NUMBERS: list[Any] = [0, -1, -3, 1, 2, 7, 70, 1000, 10**6, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63)]
NUMBERS += [10**30, 10**400, 0.0, -0.0, 1e-300, 1e-12, 0.5, 0.999, 1.5, 1e10, 1e300, float("nan"), float("inf")]
TEXTS = [
    "",
    " ",
    "5",
    "../../x",
    "/etc/passwd",
    "a\x00b",
    "\x1b[2J\x1b]0;title\x07",
    "<script>alert(1)</script>",
    "x" * 10**5,
]
TEXTS += [
    "<script>alert(1)</script>",
    "nowhere.py:f",
    ".py:",
    "a|b\nc",
    "\ud800",
    "𝕏é",
    "${x}",
    "%s%n",
    "NaN",
    "name",
    "digits",
    "fedavg",
]
OTHERS: list[Any] = [
    None,
    True,
    False,
    [],
    {},
    [1],
    [[]],
    [None],
    {"name": 3},
    {"name": "x"},
    {"": {}},
    [1, "a"],
    [0] * 1000,
]


def hostile_value(kind: object, rng: random.Random) -> Any:
    """Return a value for an option of this type, mostly of the type itself, sometimes nested very deeply."""
    if rng.random() < 0.02:
        return _deep(rng.choice([50, 3000]))
    words = re.findall(r"'(\w+)'", str(kind)) if "Literal" in str(kind) else []
    own = NUMBERS if "int" in str(kind) or "float" in str(kind) else words or TEXTS
    return rng.choice(rng.choice([own, own, own, NUMBERS, TEXTS, OTHERS]))


def mutate_settings(settings: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return settings with one to three declared options changed, removed or renamed."""
    changed = msgspec.to_builtins(settings)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        _change(changed, Config, rng, hostile_value)
    return dict(changed)


def _change(
    table: dict[str, Any],
    kind: type[msgspec.Struct],
    rng: random.Random,
    draw: Callable[[object, random.Random], Any],
) -> None:
    """Change one option of a table or of one of its sub-tables."""
    if not (fields := msgspec.structs.fields(kind)):
        return
    field = rng.choice(fields)
    name, kinds = field.encode_name, structs(item(field.type)) or structs(field.type)
    if kinds and rng.random() < 0.9:
        inner = table.get(name)
        known = [one for one in kinds if isinstance(inner, dict) and tag(one) in _names(inner)]
        chosen = rng.choice(known or kinds)
        if not known:
            inner = {} if tag(chosen) is None else {chosen.__struct_config__.tag_field or "name": tag(chosen)}
        assert isinstance(inner, dict)
        table[name] = [inner] if item(field.type) else inner
        _change(inner, chosen, rng, draw)
    elif rng.random() < 0.1:
        table.pop(name, None)
    elif rng.random() < 0.05:
        table[name + rng.choice("sx_ é")] = draw(field.type, rng)
    else:
        table[name] = draw(field.type, rng)


def _names(table: dict[str, Any]) -> Iterator[Any]:
    yield from (table.get(key) for key in ("name", "clock") if key in table)


def _deep(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


LABELS = [
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31m and \x85",
    "a\x00b\x7f",
    "line\nline\r\ttab",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1)) `code` | cell",
    "```\n<b>out of the fence</b>",
    r"\input{/etc/passwd} $x$ 50% & #1_{}~^",
    "right\u202eto left\u2066",
    "\ufeff\u2028\uffff",
    "[red]markup[/red]",
    "𝕏é漢字" * 40,
]
"""Names of runs written by others: configurations reject them, but the files of a run may contain anything."""


FLOATS = [0.0, -0.0, 5e-324, 1e-300, 1e-12, 0.5, 1.0, 1.5, 1e10, 1e38, 1e39, 1e300, 1.7e308, -1e-300, -1.7e308]
COUNTS = [0, 1, 2, 3, 7, 50, 300]
"""Counts that are large enough to matter, but small enough for a round to end in time."""


def extreme_settings(settings: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return settings for one round with one to three options at the limits of their range.

    Clients run in one process: starting workers in each of thousands of runs would show nothing.
    """
    changed = msgspec.to_builtins(settings)
    changed["algorithm"] = {"name": rng.choice([tag(kind) for kind in ALGORITHMS])}
    for _ in range(rng.choice([1, 2, 2, 3])):
        _change(changed, Config, rng, _extreme_value)
    engine = changed.get("engine") if isinstance(changed.get("engine"), dict) else {}
    return {**changed, "rounds": 1, "engine": {**engine, "name": rng.choice(["loop", "wire", "block"])}}


def _extreme_value(kind: object, rng: random.Random) -> Any:
    """Return a value of the option's type: a limit of its range, or a small count with a large value."""
    try:
        return _extreme_of(msgspec.inspect.type_info(kind), rng)
    except TypeError:  # a union of structs, which msgspec does not describe
        return hostile_value(kind, rng)


def _extreme_of(kind: msgspec.inspect.Type, rng: random.Random) -> Any:
    match kind:
        case msgspec.inspect.Metadata():
            return _extreme_of(kind.type, rng)
        case msgspec.inspect.UnionType():
            return _extreme_of(rng.choice(kind.types), rng)
        case msgspec.inspect.IntType():
            ends = [end for end in (kind.ge, kind.le) if end is not None and abs(end) <= 1000]
            return rng.choice([*ends, *COUNTS])
        case msgspec.inspect.FloatType():
            ends = [float(end) for end in (kind.ge, kind.gt, kind.le, kind.lt) if end is not None]
            return rng.choice([*ends, *(nextafter(end, way) for end in ends for way in (-inf, inf)), *FLOATS])
        case msgspec.inspect.LiteralType():
            return rng.choice(kind.values)
        case msgspec.inspect.BoolType():
            return rng.random() < 0.5
        case msgspec.inspect.ListType():
            return [_extreme_of(kind.item_type, rng) for _ in range(rng.choice([0, 1, 2, 3]))]
        case msgspec.inspect.NoneType():
            return None
    return rng.choice(TEXTS)
