"""Data in a user's table: CSV or Parquet."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta, field

from fedge.core.errors import DataError
from fedge.core.extras import need
from fedge.data.data_plan import Share
from fedge.data.divided_dataset import Divided
from fedge.data.files import read_checked, read_unzipped
from fedge.data.normalise import Normalise
from fedge.data.partition import Natural
from fedge.data.table_columns import TableColumns, whole_of_tables
from fedge.data.whole import Whole


class Table(Divided, tag="table", kw_only=True):
    """Rows of a CSV file with a header, or of a Parquet file: numeric inputs, a target, and optionally their owner.

    Every column is an input, except the target, those to ignore and the one that `natural` splits by. Inputs are
    normalised unless `normalise` is false, because columns of a table rarely have the same scale.
    """

    file: Annotated[str, Meta(description="File of training samples: .csv, .csv.gz or .parquet.")]
    target: Annotated[str, Meta(description="Column to predict.")]
    task: Annotated[
        Literal["classes", "values"], Meta(description="Whether the target is a class of any type, or a number.")
    ] = "classes"
    ignore: Annotated[list[str], Meta(description="Columns that are not inputs.")] = field(default_factory=list)
    test_file: Annotated[str | None, Meta(description="File of test samples, with the same columns.")] = None
    test_fraction: Annotated[
        Share,
        Meta(description="Without test_file: share of the last rows for the test (with natural, of each key)."),
    ] = 0.2
    normalise: Normalise = True

    def whole(self, train: bool = True) -> Whole:
        rows = read_table(Path(self.file).expanduser())
        keys = [self.partition.column] if isinstance(self.partition, Natural) and self.partition.column else []
        rows.require((self.target, *keys, *self.ignore))
        if self.test_file is None:
            rows, test = rows.split(keys[0] if keys else None, self.test_fraction)
        else:
            test = read_table(Path(self.test_file).expanduser())
        return whole_of_tables(rows, test, target=self.target, task=self.task, keys=keys, ignore=self.ignore)


def read_table(path: Path) -> TableColumns:
    """Return the columns of a file, each an array of numbers or of strings."""
    if path.suffix == ".parquet":
        table = _read_parquet(path)
    elif path.name.endswith((".csv", ".csv.gz")):
        table = _read_csv(path)
    else:
        raise DataError(f"data.file: expected a name that ends in .csv, .csv.gz or .parquet, got {path}")
    if not table.columns or not table.num_rows:
        raise DataError(f"{path}: expected a header and at least one row")
    return table


def _read_csv(path: Path) -> TableColumns:
    try:
        text = read_unzipped(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8: {error}; convert it") from error
    reader = csv.reader(io.StringIO(text, newline=""))
    rows, places, last = [], [], 0
    try:
        for row in reader:
            if row:
                rows.append(row)
                places.append(last + 1)  # a quoted field may span several lines: the first one counts
            last = reader.line_num
    except csv.Error as error:
        raise DataError(f"{path}, row {last + 1}: {error}; write it again") from error
    header = rows.pop(0) if rows else []
    _check_header(header, path)
    for row, place in zip(rows, places[1:], strict=True):
        if len(row) != len(header):
            raise DataError(f"{path}, row {place}: expected {len(header)} fields as in the header, got {len(row)}")
    columns = {name: _typed(np.array(column)) for name, column in zip(header, zip(*rows, strict=True), strict=False)}
    return TableColumns(columns, str(path), np.array(places[1:]))


def _read_parquet(path: Path) -> TableColumns:
    parquet = need("pyarrow.parquet", "table", "Parquet files need")
    content = io.BytesIO(read_checked(path))
    try:
        table = parquet.read_table(content)
    except Exception as error:  # pyarrow's own types, which may not be installed
        raise DataError(f"{path} cannot be read as Parquet: {error}; write it again") from error
    _check_header(table.column_names, path)
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    return TableColumns(columns, str(path), np.arange(1, table.num_rows + 1))


def _check_header(names: list[str], path: Path) -> None:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        places = ", ".join(str(place) for place, name in enumerate(names, 1) if name == twice[0])
        raise DataError(f"{path}: two columns have the name {twice[0]!r} (columns {places}); rename or remove one")


def _typed(column: np.ndarray) -> np.ndarray:
    """Return a column as integers or floats if all values are numbers, else unchanged."""
    for kind in (np.int64, np.float64):
        try:
            return column.astype(kind)
        except (ValueError, OverflowError):
            continue
    return column
