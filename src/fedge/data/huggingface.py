"""Data sets of Hugging Face's `datasets`, from a folder or from the Hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from msgspec import Meta, field
from torch import Tensor

from fedge.core.errors import DataError, nearest
from fedge.core.extras import need
from fedge.data.data_plan import Share
from fedge.data.divided_dataset import Divided
from fedge.data.images import pixels
from fedge.data.partition import Natural
from fedge.data.table_columns import TableColumns, inputs_of, require_columns, targets_of
from fedge.data.userdata import check_inputs
from fedge.data.whole import SamplePool, Whole, without_samples


class HuggingFace(Divided, tag="huggingface", kw_only=True):
    """A data set of Hugging Face's `datasets`, written by `save_to_disk` or from the Hub.

    Inputs are columns of numbers, or one column of images, arrays or lists of equal length. A class label keeps its
    names. With partition = "natural" a column has the owner of each sample.
    """

    folder: Annotated[str | None, Meta(description="Folder written by save_to_disk.")] = None
    hub: Annotated[str | None, Meta(description="Name on the Hub, as owner/name.")] = None
    config: Annotated[str | None, Meta(description="Configuration of the data set on the Hub.")] = None
    revision: Annotated[str | None, Meta(description="Commit or tag of the data set on the Hub.")] = None
    target: Annotated[str, Meta(description="Column to predict.")] = "label"
    inputs: Annotated[
        list[str], Meta(description="Input columns; by default all except the target and those to ignore.")
    ] = field(default_factory=list)
    ignore: Annotated[list[str], Meta(description="Columns that are not inputs.")] = field(default_factory=list)
    task: Annotated[
        Literal["classes", "values"], Meta(description="Whether the target is a class of any type, or a number.")
    ] = "classes"
    train: Annotated[str, Meta(description="Training split.")] = "train"
    test: Annotated[str, Meta(description="Test split, if there is one.")] = "test"
    test_fraction: Annotated[
        Share,
        Meta(description="Without a test split: share of the last rows for the test (with natural, of each key)."),
    ] = 0.2
    size: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Side in pixels to which images are scaled; not scaled by default."),
    ] = None
    colours: Annotated[Literal["rgb", "grey"], Meta(description="Images: three channels or one.")] = "rgb"
    words: Annotated[
        bool, Meta(description="Inputs are indexes of words or characters and stay integers, for an embedding.")
    ] = False

    def __post_init__(self) -> None:
        if (self.folder is None) == (self.hub is None):
            raise ValueError("folder: expected either data.folder or data.hub")

    def whole(self, train: bool = True) -> Whole:
        return self.assemble(*self._load())

    def assemble(self, splits: Mapping[str, Any], source: str) -> Whole:
        """Return the samples in named splits; errors call the data set `source`."""
        keys = [self.partition.column] if isinstance(self.partition, Natural) and self.partition.column else []
        found = splits[self.train]
        names = self.inputs or [name for name in found.column_names if name not in (self.target, *keys, *self.ignore)]
        if not names:
            raise DataError(f"{source}: no column is left as an input; it has {', '.join(found.column_names)}")
        rows = _table(found, (*names, self.target, *keys), f"{source}, split {self.train!r}")
        if self.test in splits:
            test = _table(splits[self.test], (*names, self.target, *keys), f"{source}, split {self.test!r}")
        else:
            rows, test = rows.split(keys[0] if keys else None, self.test_fraction)
        y, y_test, classes = self._targets(rows, test, found.features[self.target])
        image = type(found.features[names[0]]).__name__ == "Image"
        pool = SamplePool(self._inputs_of(rows, names, image), y)
        return Whole(
            pool,
            SamplePool(self._inputs_of(test, names, image), y_test) if test.num_rows else without_samples(pool),
            num_outputs=len(classes) or y.shape[-1],
            task=self.task,
            full_scale=255 if image else 1,
            words=self.words,
            columns={name: (rows.text(name), test.text(name)) for name in keys},
            classes=classes,
            features=tuple(names) if rows.columns[names[0]].ndim == 1 and not image else (),
        )

    def _load(self) -> tuple[Mapping[str, Any], str]:
        """Return the splits by name, and the name of the data set in errors."""
        library = need("datasets", "huggingface", "Hugging Face data sets need")
        source = str(self.folder or self.hub)
        try:
            if self.folder is not None:
                found = library.load_from_disk(str(Path(self.folder).expanduser()))
            else:
                found = library.load_dataset(self.hub, self.config, revision=self.revision)
        except Exception as error:  # many types: files, formats, the network, the Hub
            setting = "folder" if self.folder is not None else "hub"
            raise DataError(f"data.{setting}: {source} cannot be loaded: {error}") from error
        splits = found if isinstance(found, Mapping) else {self.train: found}
        if self.train not in splits:
            known = ", ".join(splits)
            raise DataError(
                f"data.train: {source} has no split {self.train!r}{nearest(self.train, splits)}; it has {known}"
            )
        return splits, source

    def _targets(self, rows: TableColumns, test: TableColumns, feature: Any) -> tuple[Tensor, Tensor, tuple[str, ...]]:
        names = getattr(feature, "names", None)  # set for a class label
        if self.task == "values" or names is None:
            return targets_of(rows, test, self.target, self.task)
        y = [torch.from_numpy(_labels(table, self.target, len(names))) for table in (rows, test)]
        return y[0], y[1], tuple(map(str, names))

    def _inputs_of(self, table: TableColumns, names: Sequence[str], image: bool) -> Tensor:
        columns = [table.columns[name] for name in names]
        if len(names) == 1 and image:
            return self._images(table, names[0])
        if all(column.ndim == 1 for column in columns):
            try:
                return inputs_of(table, names)
            except DataError as error:
                raise DataError(f"{error} (Dataset.map encodes a column; tokens need data.words = true)") from error
        if len(names) > 1:
            raise DataError(
                f"{table.source}: expected columns of numbers, or one of images or arrays, got {', '.join(names)}; "
                "name one in data.inputs"
            )
        return check_inputs(columns[0], f"{table.source}, column {names[0]!r}", self.words)

    def _images(self, table: TableColumns, name: str) -> Tensor:
        images = table.columns[name]
        for row, picture in enumerate(images):
            if picture is None:
                raise DataError(f"{table.source}, row {table.places[row]}, column {name!r}: the value is missing")
        try:
            stacked = [pixels(picture, self.colours, self.size) for picture in images]
        except (OSError, ValueError) as error:
            raise DataError(f"{table.source}, column {name!r}: an image cannot be read: {error}") from error
        if len(shapes := {picture.shape for picture in stacked}) > 1:
            shown = " and ".join("x".join(map(str, shape[1:])) for shape in sorted(shapes)[:2])
            raise DataError(f"{table.source}, column {name!r}: images differ in size, such as {shown}; set data.size")
        return torch.from_numpy(np.stack(stacked))


def _table(part: Any, names: Sequence[str], source: str) -> TableColumns:
    """Return columns of a split as arrays; entries that are lists or arrays give more than one dimension."""
    require_columns(names, part.column_names, source)
    columns = {}
    for name in dict.fromkeys(names):
        values = part.select_columns([name]).with_format(None)[:][name]
        try:
            columns[name] = _array(values)
        except ValueError as error:
            raise DataError(
                f"{source}, column {name!r}: expected entries of equal length: {error}; pad them"
            ) from error
    return TableColumns(columns, source, np.arange(1, part.num_rows + 1))


def _array(values: list[Any]) -> np.ndarray:
    """Return an array of numbers, text or lists of equal length; of objects for other or missing values."""
    if values and all(isinstance(value, bool | int | float | str | list) for value in values):
        return np.array(values)
    found = np.empty(len(values), object)
    found[:] = values
    return found


def _labels(table: TableColumns, name: str, num_classes: int) -> np.ndarray:
    """Return class indexes; a DataError that names the row if one is missing, which is -1 on the Hub."""
    labels = table.classes(name)
    if labels.dtype.kind not in "iu" or len(bad := np.flatnonzero((labels < 0) | (labels >= num_classes))):
        row = bad[0] if labels.dtype.kind in "iu" else 0
        raise DataError(
            f"{table.source}, row {table.places[row]}, column {name!r}: expected a class from 0 to {num_classes - 1}, "
            f"got {labels[row]}; remove samples without a label"
        )
    return labels.astype(np.int64)
