"""Data in a table of one's own: CSV or Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from msgspec import Meta, field
from torch import Tensor

from fedge.core.errors import DataError, FedgeError, nearest
from fedge.data.apportionment import hold_out
from fedge.data.divided_dataset import Divided
from fedge.data.files import read_checked, read_unzipped
from fedge.data.partition import Natural
from fedge.data.whole import SamplePool, Whole

Columns = dict[str, np.ndarray]


class Table(Divided, tag="table", kw_only=True):
    """Rows of a CSV file with a header, or of a Parquet file: numbers, a target, and perhaps who they are from.

    Every column is an input but the target, those to ignore and the one that `natural` splits by.
    """

    file: Annotated[str, Meta(description="The training samples: .csv, .csv.gz or .parquet.")]
    target: Annotated[str, Meta(description="The column to predict.")]
    task: Annotated[
        Literal["classes", "values"], Meta(description="Whether the target is a class, of any kind, or a number.")
    ] = "classes"
    ignore: Annotated[list[str], Meta(description="Columns that are no inputs.")] = field(default_factory=list)
    test_file: Annotated[str | None, Meta(description="The test samples, in the same form.")] = None
    test_fraction: Annotated[
        float,
        Meta(
            ge=0,
            lt=1,
            description="Without test_file: the share of the last rows, by natural of each key, for the test.",
        ),
    ] = 0.2

    def whole(self, train: bool = True) -> Whole:
        path = Path(self.file).expanduser()
        rows = read_table(path)
        keys = [self.partition.column] if isinstance(self.partition, Natural) and self.partition.column else []
        for name in (self.target, *keys, *self.ignore):
            _check_column(rows, name, path)
        if self.test_file is None:
            rows, test = _halves(rows, keys, self.test_fraction)
        else:
            test = read_table(Path(self.test_file).expanduser())
        return self.assemble(rows, test, keys)

    def assemble(self, rows: Columns, test: Columns, keys: Sequence[str] = ()) -> Whole:
        """Return the data set in these rows; `keys` are columns to split by."""
        path = Path(self.file).expanduser()
        inputs = [name for name in rows if name not in (self.target, *keys, *self.ignore)]
        for name in (*inputs, self.target, *keys):
            _check_column(test, name, Path(self.test_file or self.file))
        y, y_test, classes = self._targets(rows[self.target], test[self.target])
        return Whole(
            SamplePool(_inputs(rows, inputs, path), y),
            SamplePool(_inputs(test, inputs, path), y_test),
            num_outputs=len(classes) or 1,
            task=self.task,
            columns={name: (rows[name].astype(str), test[name].astype(str)) for name in (*keys, *self.ignore)},
            classes=classes,
            features=tuple(inputs),
        )

    def _targets(self, train: np.ndarray, test: np.ndarray) -> tuple[Tensor, Tensor, tuple[str, ...]]:
        """Return targets for training and for the test, and the names of classes."""
        if self.task == "values":
            y = [torch.from_numpy(_numbers(values, self.target)[:, None]) for values in (train, test)]
            return y[0], y[1], ()
        classes = np.unique(train)
        if unknown := sorted(set(test.tolist()) - set(classes.tolist()), key=str):
            raise DataError(f"data.target: the test set has classes that no training sample has, such as {unknown[0]}")
        places = [torch.from_numpy(np.searchsorted(classes, values)) for values in (train, test)]
        return places[0], places[1], tuple(map(str, classes.tolist()))


def read_table(path: Path) -> Columns:
    """The columns of a file, each an array of numbers or of strings."""
    if path.suffix == ".parquet":
        columns = _read_parquet(path)
    elif path.name.endswith((".csv", ".csv.gz")):
        columns = _read_csv(path)
    else:
        raise DataError(f"data.file: expected a name that ends in .csv, .csv.gz or .parquet, got {path}")
    if not columns or not len(next(iter(columns.values()))):
        raise DataError(f"{path}: expected a header and at least one row, got none")
    return columns


def _read_csv(path: Path) -> Columns:
    try:
        text = read_unzipped(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8: {error}; convert it") from error
    header, *rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row] or [[]]
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise DataError(f"{path}, row {number}: expected {len(header)} fields as in the header, got {len(row)}")
    return {name: _typed(np.array(column)) for name, column in zip(header, zip(*rows, strict=True), strict=False)}


def _read_parquet(path: Path) -> Columns:
    try:
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        raise FedgeError("Parquet files need pyarrow, which is not installed; pip install 'fedge[table]'") from None
    content = io.BytesIO(read_checked(path))
    try:
        table = parquet.read_table(content)
    except Exception as error:  # pyarrow's own kinds, which need not be there
        raise DataError(f"{path} cannot be read as Parquet: {error}; write it again") from error
    return {name: table.column(name).to_numpy() for name in table.column_names}


def _typed(column: np.ndarray) -> np.ndarray:
    """Numbers where all are, whole ones as integers."""
    for kind in (np.int64, np.float64):
        try:
            return column.astype(kind)
        except ValueError:
            continue
    return column


def _halves(table: Columns, keys: list[str], test_fraction: float) -> tuple[Columns, Columns]:
    rows = len(next(iter(table.values())))
    train, test = hold_out(table[keys[0]].astype(str) if keys else np.zeros(rows), test_fraction)
    return {name: values[train] for name, values in table.items()}, {name: v[test] for name, v in table.items()}


def _check_column(table: Columns, name: str, path: Path) -> None:
    if name not in table:
        raise DataError(f"{path} has no column {name!r}{nearest(name, table)}; it has {', '.join(table)}")


def _inputs(table: Columns, names: list[str], path: Path) -> Tensor:
    if not names:
        raise DataError(f"{path}: no column is left as an input; it has {', '.join(table)}")
    return torch.from_numpy(np.stack([_numbers(table[name], name) for name in names], axis=1))


def _numbers(values: np.ndarray, name: str) -> np.ndarray:
    if values.dtype.kind not in "biuf":
        raise DataError(
            f"column {name!r}: expected numbers, got {str(values[0])!r}; encode it, or list it in data.ignore"
        )
    with np.errstate(over="ignore"):  # what overflows becomes infinite, and is reported as such
        numbers = values.astype(np.float32)
    if bad := len(numbers) - np.count_nonzero(np.isfinite(numbers)):
        raise DataError(f"column {name!r}: {bad} of {len(numbers)} values are missing, infinite or beyond float32")
    return numbers
