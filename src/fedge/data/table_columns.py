"""Samples from the columns of a table: numeric inputs and a target; errors name the row and the column."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor

from fedge.core.errors import DataError, nearest
from fedge.core.printable import printable
from fedge.data.apportionment import hold_out
from fedge.data.whole import SamplePool, Whole

_SHOWN = 40  # characters of a cell in an error
INPUT_REMEDY = "encode it as numbers, or list it in data.ignore"
TARGET_REMEDY = 'name another data.target, or set data.task = "classes"'
"""Advice in errors about text where numbers are expected."""


class TableColumns(NamedTuple):
    """Columns of equal length by name: arrays of numbers, of text, or of objects with None where a value is missing."""

    columns: Mapping[str, np.ndarray]
    source: str  # name of the table in errors, such as its path
    places: np.ndarray  # the number of each row as the user sees it: for a file, the line in an editor

    @property
    def num_rows(self) -> int:
        return len(self.places)

    def take(self, rows: np.ndarray | slice) -> TableColumns:
        """Return some of the rows, with their original row numbers."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        return self._replace(columns=columns, places=self.places[rows])

    def split(self, key: str | None, test_fraction: float) -> tuple[TableColumns, TableColumns]:
        """Return the training rows and the test rows, which are the last ones (of each key, if `key` is given)."""
        keys = np.zeros(self.num_rows) if key is None else self.text(key)
        train, test = hold_out(keys, test_fraction)
        return self.take(train), self.take(test)

    def require(self, names: Sequence[str]) -> None:
        """Raise a DataError if a column is missing."""
        require_columns(names, self.columns, self.source)

    def numbers(self, name: str, remedy: str) -> np.ndarray:
        """Return a column as float32; a DataError that names the row if a value is not a finite number."""
        values = self.columns[name]
        if values.dtype.kind in "OU":
            values = self._parsed(name, values, remedy)
        if values.dtype.kind not in "biuf":
            kind = "dates or times" if values.dtype.kind in "mM" else f"values of type {values.dtype}"
            raise DataError(f"{self.source}, column {name!r}: expected numbers, got {kind}; {remedy}")
        self._check_present(name, _missing(values))
        with np.errstate(over="ignore"):  # overflow becomes infinite, and is reported as such
            numbers = values.astype(np.float32)
        if len(bad := np.flatnonzero(~np.isfinite(numbers))):
            self._refuse(name, bad, f"{values[bad[0]]} is infinite or beyond float32; correct it, or remove the row")
        return numbers

    def text(self, name: str) -> np.ndarray:
        """Return a column as strings; a DataError that names the row if a value is missing."""
        values = self.columns[name]
        self._check_present(name, _missing(values))
        return values.astype(str)

    def classes(self, name: str) -> np.ndarray:
        """Return a column of sortable values; a DataError that names the row if a value is missing."""
        values = self.columns[name]
        return self.text(name) if values.dtype.kind not in "biuf" else self._check_present(name, _missing(values))

    def _check_present(self, name: str, missing: np.ndarray) -> np.ndarray:
        if len(rows := np.flatnonzero(missing)):
            self._refuse(name, rows, "the value is missing; fill it in, or remove the row")
        return self.columns[name]

    def _parsed(self, name: str, values: np.ndarray, remedy: str) -> np.ndarray:
        """Return a column of text or objects as numbers, NaN where missing; a DataError if a value is not a number."""
        missing = _missing(values)
        numbers = np.full(len(values), np.nan)
        bad = []
        for row in np.flatnonzero(~missing).tolist():
            try:
                numbers[row] = float(values[row])
            except (TypeError, ValueError, OverflowError):
                bad.append(row)
        if bad and len(bad) * 2 < len(values):  # a column of numbers with a few other values
            shown = printable(str(values[bad[0]])[:_SHOWN])
            self._refuse(name, np.array(bad), f"expected a number, got {shown!r}; correct it, or remove the row")
        if bad:
            shown = printable(str(values[bad[0]])[:_SHOWN])
            raise DataError(
                f"{self.source}, column {name!r}: expected numbers, got text ({shown!r} in row {self.places[bad[0]]}); "
                f"{remedy}"
            )
        return numbers

    def _refuse(self, name: str, rows: np.ndarray, problem: str) -> NoReturn:
        more = f" ({len(rows)} of {self.num_rows} rows have such a value)" if len(rows) > 1 else ""
        raise DataError(f"{self.source}, row {self.places[rows[0]]}, column {name!r}: {problem}{more}")


def require_columns(names: Iterable[str], known: Collection[str], source: str) -> None:
    """Raise a DataError that names a column which the table `source` lacks."""
    if missing := [name for name in names if name not in known]:
        raise DataError(f"{source} has no column {missing[0]!r}{nearest(missing[0], known)}; it has {', '.join(known)}")


def whole_of_tables(
    train: TableColumns,
    test: TableColumns,
    *,
    target: str,
    task: Literal["classes", "values"] = "classes",
    keys: Sequence[str] = (),
    ignore: Sequence[str] = (),
    input_remedy: str = INPUT_REMEDY,
    target_remedy: str = TARGET_REMEDY,
) -> Whole:
    """Return the data set in these rows; all columns are inputs except the target, the keys to split by and `ignore`.

    The remedies are advice in errors about text where numbers are expected.
    """
    train.require((target, *keys, *ignore))
    inputs = [name for name in train.columns if name not in (target, *keys, *ignore)]
    if not inputs:
        raise DataError(f"{train.source}: no column is left as an input; it has {', '.join(train.columns)}")
    test.require((*inputs, target, *keys))
    y, y_test, classes = targets_of(train, test, target, task, target_remedy)
    others = [name for name in ignore if name in test.columns]
    columns = {name: (train.text(name), test.text(name)) for name in keys}
    columns |= {name: (train.columns[name].astype(str), test.columns[name].astype(str)) for name in others}
    return Whole(
        SamplePool(inputs_of(train, inputs, input_remedy), y),
        SamplePool(inputs_of(test, inputs, input_remedy), y_test),
        num_outputs=len(classes) or 1,
        task=task,
        columns=columns,
        classes=classes,
        features=tuple(inputs),
    )


def inputs_of(table: TableColumns, names: Sequence[str], remedy: str = INPUT_REMEDY) -> Tensor:
    """Return columns of numbers as one tensor `[n, len(names)]`."""
    return torch.from_numpy(np.stack([table.numbers(name, remedy) for name in names], axis=1))


def targets_of(
    train: TableColumns,
    test: TableColumns,
    target: str,
    task: Literal["classes", "values"],
    remedy: str = TARGET_REMEDY,
) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Return the training targets, the test targets and the names of the classes."""
    if task == "values":
        y = [torch.from_numpy(table.numbers(target, remedy)[:, None]) for table in (train, test)]
        return y[0], y[1], ()
    values, held = train.classes(target), test.classes(target)
    if held.dtype.kind == "U" or values.dtype.kind == "U":  # numbers in one file, text in the other
        values, held = values.astype(str), held.astype(str)
    classes = np.unique(values)
    if len(unknown := np.flatnonzero(~np.isin(held, classes))):
        raise DataError(
            f"data.target: the test set has classes that no training sample has, such as {held[unknown[0]]} in "
            f"row {test.places[unknown[0]]} of {test.source}"
        )
    places = [torch.from_numpy(np.searchsorted(classes, labels)) for labels in (values, held)]
    return places[0], places[1], tuple(map(str, classes.tolist()))


def _missing(values: np.ndarray) -> np.ndarray:
    """Return a mask of the missing values in a column: NaN, NaT, None, or blank text."""
    if values.dtype.kind == "O":
        return np.array([_is_missing(value) for value in values], bool)
    if values.dtype.kind == "U":
        return np.asarray(np.char.strip(values) == "")
    is_missing = {"f": np.isnan, "m": np.isnat, "M": np.isnat}.get(values.dtype.kind)
    return np.asarray(is_missing(values)) if is_missing else np.zeros(len(values), bool)


def _is_missing(value: Any) -> bool:
    """Return whether a cell has no value; pandas' NA has no truth value and equals nothing, itself included."""
    if value is None or isinstance(value, str):
        return not (value or "").strip()
    same = value == value
    return not (isinstance(same, bool | np.bool_) and same)
