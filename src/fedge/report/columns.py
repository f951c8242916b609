"""The rounds of many runs as columns, fast enough for a million of them.

Rows of numbers are decoded into structs and encoded again as MessagePack, in which they are all equally long: numpy
then takes the columns out of the bytes, and no number passes through Python one by one. Rows that hold anything
else (text, true, null) are decoded the plain way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import nan
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fedge.runs import Run

Array = np.ndarray[tuple[int], np.dtype[Any]]


class Rounds(NamedTuple):
    """The rounds of several runs below each other: how many each has, and a column for each field.

    What was not measured is NaN in a column of numbers, None in one that holds anything else.
    """

    lengths: list[int]
    columns: dict[str, Array]


class _Part(NamedTuple):
    length: int
    columns: dict[str, Array]


def read_rounds(runs: Sequence[Run]) -> Rounds:
    """All fields of all rounds, as integers where the records have integers."""
    names: tuple[str, ...] = ()
    fractions: set[str] = set()  # fields seen with anything but integers; the fast way cannot tell 1.0 from 1
    parts = []
    for run in runs:
        lines = run.round_lines()
        part = _numbers(lines, names)
        if part is None:  # a field not seen before, or more than numbers
            names = tuple(dict.fromkeys((*names, *(name for row in run.rounds for name in row))))
            fractions |= {name for row in run.rounds for name, value in row.items() if type(value) is not int}
            part = _numbers(lines, names) or _anything(run.rounds)
        parts.append(part)
    columns = {name: _joined(parts, name) for name in dict.fromkeys(n for part in parts for n in part.columns)}
    whole = {
        name: column.astype(np.int64) for name, column in columns.items() if name not in fractions and _whole(column)
    }
    return Rounds([part.length for part in parts], columns | whole)


def _numbers(lines: bytes, names: tuple[str, ...]) -> _Part | None:
    """Rows with none but these fields and nothing but numbers in them; None if they have more."""
    if not names:
        return None
    decoder, row = _form(names)
    try:
        rows = decoder.decode_lines(lines)
    except msgspec.ValidationError:
        return None
    packed = _PACKER.encode(rows)
    table = np.frombuffer(packed, row, len(rows), len(packed) - len(rows) * row.itemsize)
    return _Part(len(rows), {name: table[name].astype(np.float64) for name in names})


def _anything(rows: Sequence[Mapping[str, Any]]) -> _Part:
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return _Part(len(rows), {name: _column(values) for name, values in columns.items()})


def _column(values: Sequence[Any]) -> Array:
    if all(value is None or type(value) in (int, float) for value in values):
        return np.array([nan if value is None else value for value in values], np.float64)
    column = np.empty(len(values), object)
    column[:] = values
    return column


_PACKER = msgspec.msgpack.Encoder()


@lru_cache(16)
def _form(names: tuple[str, ...]) -> tuple[msgspec.json.Decoder[Any], np.dtype[Any]]:
    """How rows are decoded, and how a row lies in MessagePack: a head, then each name with its head and 9 bytes."""
    kind = msgspec.defstruct(
        "Row",
        [(f"f{i}", float, nan) for i in range(len(names))],
        rename=dict(zip((f"f{i}" for i in range(len(names))), names, strict=True)),
        forbid_unknown_fields=True,
        gc=False,
    )
    at = 1 if len(names) < 16 else 3  # bytes of the head; no row has over 65,535 fields
    offsets = []
    for name in names:
        at += len(_PACKER.encode(name))
        offsets.append(at + 1)
        at += 9
    row = np.dtype({"names": list(names), "formats": [">f8"] * len(names), "offsets": offsets, "itemsize": at})
    return msgspec.json.Decoder(kind), row


def _joined(parts: Sequence[_Part], name: str) -> Array:
    """The column of all parts; None or NaN for the rounds of a part that has no such field."""
    anything = any(name in part.columns and part.columns[name].dtype == object for part in parts)
    column: Array = np.empty(sum(part.length for part in parts), object if anything else np.float64)
    at = 0
    for part in parts:
        found = part.columns.get(name)
        column[at : at + part.length] = (None if anything else nan) if found is None else found
        at += part.length
    return column


def _whole(column: Array) -> bool:
    """Whether integers lose nothing; all are there, and none is beyond what a float holds exactly."""
    return column.dtype != object and bool((column == np.floor(column)).all() and (np.abs(column) < 2**53).all())
