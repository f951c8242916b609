"""In-memory data sets: arrays, PyTorch data sets, data frames, one data set per client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypedDict, Unpack

import numpy as np
from torch import Tensor

from fedge.core.errors import DataError
from fedge.data.apportionment import hold_out
from fedge.data.augment import Augment
from fedge.data.divided_dataset import Noise
from fedge.data.drift import DriftOptions
from fedge.data.huggingface import HuggingFace
from fedge.data.normalise import Scaling
from fedge.data.partition import Iid, Natural
from fedge.data.table_columns import TableColumns, whole_of_tables
from fedge.data.userdata import check_arrays, stack, stack_both
from fedge.data.whole import Whole

CLIENT = "client"
"""Column with the client of each sample, where every client has its own data set."""
TARGET = "target"
"""Default target column of a data frame."""

LABEL = "label"
"""Default target column of a Hugging Face data set."""


class DivisionSettings(TypedDict, total=False):
    """Settings of any data set besides clients and partition: see `data` in experiment files."""

    noise: Noise | Mapping[str, Any]
    augment: Augment | Mapping[str, Any]
    normalise: bool | Scaling | Mapping[str, Any]
    shared_fraction: float
    oversample: bool
    drift: DriftOptions | Mapping[str, Any]
    validation: float


class InMemory(Protocol):
    """A data set in memory, before it is divided."""

    settings: DivisionSettings

    @property
    def type(self) -> str:
        """Type of the data set, for messages."""

    @property
    def divided(self) -> bool:
        """Whether the data set already assigns samples to clients."""

    def whole(self, keys: Sequence[str] = ()) -> Whole:
        """Return all samples; a DataError if they are invalid. `keys` are columns to split by."""


class Arrays:
    """Inputs `x` and targets `y` as arrays or tensors, one row per sample.

    Integer targets and strings are classes, floating-point ones `[n]` or `[n, k]` are values to predict. Without
    `x_test` and `y_test` the last samples of each class, a share of `test_fraction`, are the test set. `columns` has
    further information about samples, such as their user, for `Natural`: `{"user": users}`, or with a test set
    `{"user": (users, test_users)}`. With `words`, inputs are indexes and stay integers, for an embedding.
    """

    divided = False

    def __init__(
        self,
        x: Any,
        y: Any,
        x_test: Any = None,
        y_test: Any = None,
        *,
        test_fraction: float = 0.2,
        columns: Mapping[str, Any] | None = None,
        words: bool = False,
        **settings: Unpack[DivisionSettings],
    ) -> None:
        if (x_test is None) != (y_test is None):
            raise DataError("data: expected both x_test and y_test or neither, got one of them")
        _check_fraction(test_fraction)
        self._arrays = [None if each is None else _array(each) for each in (x, y, x_test, y_test)]
        self._test_fraction, self._columns, self._words = test_fraction, dict(columns or {}), words
        self.settings = settings
        self.type = "Arrays"

    def __repr__(self) -> str:
        shapes = [None if each is None else list(each.shape) for each in self._arrays]
        return f"Arrays(x={shapes[0]}, y={shapes[1]})"

    def whole(self, keys: Sequence[str] = ()) -> Whole:
        x, y, x_test, y_test = self._arrays
        assert x is not None
        assert y is not None
        if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
            raise DataError(
                f"data: expected x and y to have one entry per sample, got shapes {list(x.shape)} and {list(y.shape)}"
            )
        pairs = self._columns
        if x_test is None or y_test is None:
            for name, column in pairs.items():
                if len(column) != len(x):
                    raise DataError(f"column {name!r}: expected {len(x)} entries, got {len(column)}")
            train, test = _hold_out(y, self._test_fraction)
            x, x_test, y, y_test = x[train], x[test], y[train], y[test]
            pairs = {name: (np.asarray(each)[train], np.asarray(each)[test]) for name, each in pairs.items()}
        return _assemble(x, y, x_test, y_test, pairs, self._words)


class FrameTable:
    """The rows of a pandas or polars data frame, a Hugging Face data set, or a CSV or Parquet file at a path.

    `target` is the column to predict. Every other column is an input, except those in `ignore` and the one that
    `Natural` splits by. `task` is "classes" or, for numeric targets, "values"; by default floating-point targets are
    values. `test` is a frame of test rows; without it the last rows, a share of `test_fraction`, are the test set.
    Inputs are normalised unless `normalise=False`.
    """

    divided = False

    def __init__(
        self,
        frame: Any,
        target: str,
        *,
        test: Any = None,
        task: Literal["classes", "values"] | None = None,
        ignore: Sequence[str] = (),
        test_fraction: float = 0.2,
        **settings: Unpack[DivisionSettings],
    ) -> None:
        if task not in (None, "classes", "values"):
            raise DataError(f"data.task: expected 'classes' or 'values', got {task!r}")
        _check_fraction(test_fraction)
        self._frame, self._target, self._test, self._task = frame, target, test, task
        self._ignore, self._test_fraction = list(ignore), test_fraction
        self.settings: DivisionSettings = {"normalise": True, **settings}
        self.type = "Dataset" if _is_hugging_face(frame) else "DataFrame"

    def __repr__(self) -> str:
        return f"Table({type(self._frame).__name__}, target={self._target!r})"

    @property
    def file_settings(self) -> dict[str, Any] | None:
        """The settings of the data set if it is a file, which can be read without the program; otherwise None."""
        if not isinstance(self._frame, str | Path):
            return None
        found: dict[str, Any] = {"name": "table", "file": str(self._frame), "target": self._target}
        found |= {"ignore": self._ignore, "test_fraction": self._test_fraction, **self.settings}
        if self._test is not None:
            found["test_file"] = str(self._test)
        return found | ({"task": self._task} if self._task else {})

    def whole(self, keys: Sequence[str] = ()) -> Whole:
        if _is_hugging_face(self._frame):
            return self._whole_of_splits(keys)
        rows = _columns_of(self._frame, "the data frame")
        rows.require((self._target, *keys, *self._ignore))
        if self._test is None:
            rows, test = rows.split(keys[0] if keys else None, self._test_fraction)
        else:
            test = _columns_of(self._test, "the data frame of test rows")
        task = self._task or ("values" if rows.columns[self._target].dtype.kind == "f" else "classes")
        return whole_of_tables(
            rows,
            test,
            target=self._target,
            task=task,
            keys=keys,
            ignore=self._ignore,
            input_remedy="encode it as numbers, or list it in ignore of fedge.Table",
            target_remedy='name another target, or set task="classes" of fedge.Table',
        )

    def _whole_of_splits(self, keys: Sequence[str]) -> Whole:
        splits = self._frame if isinstance(self._frame, Mapping) else {"train": self._frame}
        if self._test is not None:
            splits = {**splits, "test": self._test}
        if "train" not in splits:
            raise DataError(f"data: expected a split 'train', got {', '.join(splits)}; pass one data set and test=")
        options = HuggingFace(
            folder="in memory",
            target=self._target,
            ignore=self._ignore,
            task=self._task or "classes",
            test_fraction=self._test_fraction,
            partition=Natural(column=keys[0]) if keys else Iid(),
        )
        return options.assemble(splits, "the data set")


class ClientSets:
    """One data set for each client: pairs (train, test), each (x, y) or a PyTorch data set; test may be None."""

    divided = True

    def __init__(
        self, clients: Sequence[tuple[Any, Any]], *, words: bool = False, **settings: Unpack[DivisionSettings]
    ) -> None:
        if not len(clients):
            raise DataError("data: expected at least one client, got none")
        self._clients, self._words = list(clients), words
        self.settings = settings
        self.type = "Clients"

    def __repr__(self) -> str:
        return f"Clients(<{len(self._clients)} clients>)"

    def whole(self, keys: Sequence[str] = ()) -> Whole:
        sides: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {"train": [], "test": []}
        owners: dict[str, list[np.ndarray]] = {"train": [], "test": []}
        for number, pair in enumerate(self._clients):
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise DataError(f"data, client {number}: expected a pair (train, test), got {type(pair).__name__}")
            for part, samples in zip(("train", "test"), pair, strict=True):
                if samples is None and part == "test":
                    continue
                x, y = _both(samples, f"data, client {number}, {part}")
                if part == "train" and not len(x):
                    raise DataError(f"data, client {number}: expected at least one training sample, got none")
                sides[part].append((x, y))
                owners[part].append(np.full(len(x), f"{number:08}"))  # sorts by client number
        if not sum(len(x) for x, _ in sides["test"]):
            raise DataError(
                "data: no client has test samples, so models cannot be evaluated; give at least one client a test set"
            )
        x, y, x_test, y_test = (_joined([pair[side] for pair in sides[part]]) for part in sides for side in (0, 1))
        whose = (np.concatenate(owners["train"]), np.concatenate(owners["test"]))
        return _assemble(x, y, x_test, y_test, {CLIENT: whose}, self._words)


def in_memory(data: Any) -> InMemory | None:
    """Return the data set in arrays, PyTorch data sets or a data frame; None for other objects."""
    if isinstance(data, Arrays | FrameTable | ClientSets):
        return data
    if _is_hugging_face(data):
        return FrameTable(data, LABEL, normalise=False)
    if _is_frame(data):
        if TARGET not in data.columns:
            names = ", ".join(map(str, data.columns))
            raise DataError(f"data: expected a column {TARGET!r}, got {names}; pass fedge.Table(frame, target=...)")
        return FrameTable(data, TARGET)
    if isinstance(data, tuple | list):
        if len(data) == 2 and not _is_array(data[0]) and not _is_array(data[1]):
            return _named(Arrays(*stack_both(data)), type(data[0]).__name__)
        if len(data) not in (2, 4):
            raise DataError(
                "data: expected (x, y), (x_train, y_train, x_test, y_test) or two data sets (train, test), got "
                f"{len(data)} values; for one data set per client pass fedge.Clients"
            )
        return Arrays(*data)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, Mapping | str):
        if _is_array(data):
            raise DataError("data: expected inputs and targets, got one array; pass (x, y)")
        return _named(Arrays(*stack(data, "data")), type(data).__name__)
    return None


def _named(arrays: Arrays, type: str) -> Arrays:
    arrays.type = type
    return arrays


def _check_fraction(test_fraction: float) -> None:
    if not 0 < test_fraction < 1:
        raise DataError(f"data.test_fraction: expected a number above 0 and below 1, got {test_fraction}")


def _hold_out(y: np.ndarray, test_fraction: float) -> tuple[np.ndarray, np.ndarray]:
    keys = y.astype(str) if y.ndim == 1 and y.dtype.kind not in "fc" else np.zeros(len(y))
    train, test = hold_out(keys, test_fraction)
    if len(y) and not len(test):
        raise DataError(
            f"data.test_fraction: {test_fraction:g} of each class is less than one sample; raise it, or pass x_test "
            "and y_test"
        )
    return train, test


def _assemble(
    x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, columns: Mapping[str, Any], words: bool
) -> Whole:
    classes: tuple[str, ...] = ()
    if y.dtype.kind in "UO":  # names of classes
        names = np.unique(y.astype(str))
        if unknown := sorted(set(y_test.astype(str).tolist()) - set(names.tolist())):
            raise DataError(f"data: y_test has the class {unknown[0]!r}, which no training sample has")
        y, y_test = (np.searchsorted(names, side.astype(str)) for side in (y, y_test))
        classes = tuple(map(str, names.tolist()))
    try:
        found = check_arrays((x, y, x_test, y_test, dict(columns)), words)
    except DataError as error:
        raise DataError(f"data: {error}") from None
    return found._replace(classes=classes)


def _both(samples: Any, where: str) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(samples, tuple | list) and len(samples) == 2 and _is_array(samples[0]):
        x, y = (_array(side) for side in samples)
        if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
            raise DataError(f"{where}: x and y must have one entry per sample, got {len(x)} and {len(y)}")
        return x, y
    return stack(samples, where)


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    filled = [array for array in arrays if len(array)]
    shapes = {array.shape[1:] for array in filled}
    if len(shapes) > 1:
        raise DataError(
            f"data: all clients' samples must have the same shape, got {' and '.join(map(str, sorted(shapes)))}"
        )
    return np.concatenate(filled)


def _array(value: Any) -> np.ndarray:
    """Return an array; its content is checked later."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    try:
        return np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"data: expected an array or a tensor, got {type(value).__name__} ({error})") from None


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | Tensor | list | tuple) or type(value).__module__.startswith("pandas")


def _is_hugging_face(data: Any) -> bool:
    return hasattr(data, "column_names") and type(data).__module__.partition(".")[0] == "datasets"


def _is_frame(data: Any) -> bool:
    return hasattr(data, "columns") and type(data).__module__.partition(".")[0] in ("pandas", "polars")


def _columns_of(frame: Any, what: str) -> TableColumns:
    if not _is_frame(frame):
        raise DataError(
            f"data: expected a pandas or polars data frame, or the path of a file, got {type(frame).__name__}"
        )
    names = [str(name) for name in frame.columns]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{what}: two columns have the name {twice[0]!r}; rename or remove one")
    if not len(frame):
        raise DataError(f"{what}: expected at least one row, got none")
    columns = {name: np.asarray(frame[own].to_numpy()) for name, own in zip(names, frame.columns, strict=True)}
    places = np.asarray(frame.index) if hasattr(frame, "index") else np.arange(len(frame))
    return TableColumns(columns, what, places)
