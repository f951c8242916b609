"""Read user-supplied traces: CSV files of numbers with a header. Errors name the line."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedge.core.errors import DataError, nearest

if TYPE_CHECKING:
    import _csv  # the type of csv.reader has no public name


class TraceColumns(NamedTuple):
    """Columns of a trace file as float64, and the line number of each row."""

    path: Path
    values: dict[str, np.ndarray]
    lines: np.ndarray

    def whole(self, name: str, below: int) -> np.ndarray:
        """Return a column as int64. Raises DataError unless all values are whole numbers from 0 to `below` - 1."""
        values = self.values[name]
        wrong = (values != np.floor(values)) | (values < 0) | (values >= below)
        self.refuse(wrong, name, f"a whole number from 0 to {below - 1}")
        return values.astype(np.int64)

    def refuse(self, wrong: np.ndarray, name: str, expected: str) -> None:
        """Raise a DataError about a column for the first row where `wrong` is true, if any."""
        if wrong.any():
            row = int(wrong.argmax())
            got = f"{self.values[name][row]:.15g}"
            raise DataError(f"{self.path}, line {self.lines[row]}: expected {name} to be {expected}, got {got}")


def read_columns(path: str | Path, columns: Sequence[str]) -> TraceColumns:
    """Return these columns of a CSV file; other columns are ignored.

    Raises DataError if the file cannot be read, lacks a column, has no rows, or has a value that is not finite.
    """
    path = Path(path).expanduser()
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines, texts = _fields(path, csv.reader(file), columns)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; expected a CSV file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not CSV text in UTF-8: {error}; convert it") from error
    if not lines:
        raise DataError(f"{path}: expected at least one row below the header, got none")
    numbers = np.array([_number(text) for text in texts])
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        row, column = divmod(int(wrong[0]), len(columns))
        expected = f"{columns[column]} to be a finite number"
        raise DataError(f"{path}, line {lines[row]}: expected {expected}, got {texts[wrong[0]]!r}")
    table = numbers.reshape(len(lines), len(columns))
    return TraceColumns(path, {name: table[:, i] for i, name in enumerate(columns)}, np.array(lines))


def _fields(path: Path, reader: _csv.Reader, columns: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return the line number of each row, and the fields of these columns, row by row in one flat list.

    A list per row would keep the garbage collector busy for a million rows.
    """
    header = [name.strip() for name in next(reader, [])]
    for name in columns:
        if name not in header:
            raise DataError(
                f"{path}, line 1: expected a header with {', '.join(columns)}; there is no {name!r}"
                f"{nearest(name, header)} in {', '.join(header) or 'an empty file'}"
            )
    places = [header.index(name) for name in columns]
    lines: list[int] = []
    texts: list[str] = []
    for row in filter(None, reader):
        if len(row) != len(header):
            expected = f"{len(header)} fields as in the header"
            raise DataError(f"{path}, line {reader.line_num}: expected {expected}, got {len(row)}")
        lines.append(reader.line_num)
        texts += [row[place] for place in places]
    return lines, texts


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan
