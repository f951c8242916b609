"""The rounds of many runs as columns, fast enough for a million of them.

Rows of numbers are decoded into structs and encoded again as MessagePack, where all have the same length: numpy then
extracts the columns from the bytes without handling single numbers in Python. Rows with anything else (text, true,
null) are decoded one by one. Columns are assembled in the memory that is returned, because touching new memory takes
longer than copying numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import nan
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fedge.runs import Run

Array = np.ndarray[tuple[int], np.dtype[Any]]


class RoundColumns(NamedTuple):
    """The rounds of several runs, concatenated: the number of rounds of each run, and a column per field.

    A missing value is NaN in a column of numbers and None in others.
    """

    lengths: list[int]
    columns: dict[str, Array]


class _Part(NamedTuple):
    length: int
    columns: dict[str, Array]


def read_rounds(runs: Sequence[Run]) -> RoundColumns:
    """Return all fields of all rounds, as integers where the records have integers."""
    names: tuple[str, ...] = ()
    fractions: set[str] = set()  # fields with values other than integers; the fast path cannot distinguish 1.0 from 1
    lengths: list[int] = []
    columns: defaultdict[str, _Column] = defaultdict(_Column)
    end = 0
    for run in runs:
        lines = run.round_lines()
        part = _numbers(lines, names)
        if part is None:  # a new field, or values other than numbers
            names = tuple(dict.fromkeys((*names, *(name for row in run.rounds for name in row))))
            fractions |= {name for row in run.rounds for name, value in row.items() if type(value) is not int}
            part = _numbers(lines, names) or _anything(run.rounds)
        for name, values in part.columns.items():
            columns[name].put(end, values)
        lengths.append(part.length)
        end += part.length
    joined = {name: column.joined(end) for name, column in columns.items()}
    return RoundColumns(
        lengths, {name: values if name in fractions else _whole(values) for name, values in joined.items()}
    )


class _Column:
    """One field, filled from top to bottom."""

    def __init__(self) -> None:
        self._numbers = bytearray()  # of float64; grows in place
        self._gaps: list[slice] = []
        self._others: list[tuple[slice, Array]] = []

    def put(self, start: int, values: Array) -> None:
        """Append values from a row on; earlier rows that are not filled yet have no value."""
        self._skip(start)
        if values.dtype == object:
            self._others.append((slice(start, start + len(values)), values))
            self._numbers += _NAN * len(values)
        else:
            self._numbers += values.tobytes()

    def joined(self, length: int) -> Array:
        """Return all rows: as numbers if possible, otherwise as objects."""
        self._skip(length)
        numbers: Array = np.frombuffer(self._numbers, np.float64)
        if not self._others:
            return numbers
        objects = numbers.astype(object)
        for rows in self._gaps:
            objects[rows] = None
        for rows, values in self._others:
            objects[rows] = values
        return objects

    def _skip(self, end: int) -> None:
        filled = len(self._numbers) // len(_NAN)
        if filled < end:
            self._gaps.append(slice(filled, end))
            self._numbers += _NAN * (end - filled)


def _numbers(lines: bytes, names: tuple[str, ...]) -> _Part | None:
    """Return rows that have only these fields and only numbers; None if there is anything else."""
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


_NAN = np.float64(nan).tobytes()
_PACKER = msgspec.msgpack.Encoder()


@lru_cache(16)
def _form(names: tuple[str, ...]) -> tuple[msgspec.json.Decoder[Any], np.dtype[Any]]:
    """Return a decoder of rows, and the layout of a row in MessagePack: a head, then a name and 9 bytes per field."""
    kind = msgspec.defstruct(
        "Row",
        [(f"f{i}", float) if name == "round" else (f"f{i}", float, nan) for i, name in enumerate(names)],
        rename=dict(zip((f"f{i}" for i in range(len(names))), names, strict=True)),
        forbid_unknown_fields=True,
        kw_only=True,
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


def _whole(column: Array) -> Array:
    """Return the column as integers, in the same memory, if all are exact integers; otherwise unchanged."""
    if column.dtype == object or not -(2**53) < column.min() <= column.max() < 2**53:
        return column
    whole = column.astype(np.int64)
    if not np.array_equal(whole, column):
        return column
    integers: Array = column.view(np.int64)
    integers[:] = whole
    return integers
