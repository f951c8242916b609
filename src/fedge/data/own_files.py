"""A client's own data in files: tables, arrays, folders of images, and functions that return arrays."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedge.core.errors import DataError
from fedge.core.userfile import describe, load_function
from fedge.data.apportionment import hold_out
from fedge.data.data_plan import DataPlan
from fedge.data.fitting import DataForm, fit, order_of
from fedge.data.images import Images
from fedge.data.own_data import FixedClient, OwnData
from fedge.data.preparation import Preparation
from fedge.data.table import read_table
from fedge.data.table_columns import whole_of_tables
from fedge.data.userdata import NAMES, sample_pool, stack_both, to_array
from fedge.data.validation import choose_held_out
from fedge.data.whole import SamplePool, Whole, without_samples

TABLES = (".csv", ".csv.gz", ".parquet")
ARRAYS = ".npz"
_ORDERS = ("classes", "columns")
_OF_A_DIVISION = ("augment", "drift", "noise", "oversample", "shared_fraction")


def read_own(spec: str, plan: DataPlan, number: int) -> OwnData:
    """Return the data of client `number` in its own files; a DataError if they do not match the plan."""
    for name in _OF_A_DIVISION:
        if (plan.settings or {}).get(name):
            raise DataError(
                f"{spec}: the server sets data.{name}, which applies only to parts of its own data set; give the "
                "experiment file with a number, or remove the setting on the server"
            )
    whole = _read(spec, plan)
    form = DataForm(tuple(whole.train.x.shape[1:]), whole.num_outputs, whole.task, whole.classes, whole.features)
    fitting = fit(form, plan, spec)
    prepared = Preparation(whole, None, False)
    train, test = np.arange(len(whole.train.y)), np.arange(len(whole.test.y))
    tested = whole.test
    if not len(test):
        keys = whole.train.y.numpy() if whole.task == "classes" else np.zeros(len(train))
        (train, test), tested = hold_out(keys, plan.test_fraction), whole.train
    held = np.zeros(len(train), bool)
    if plan.validation:
        held = choose_held_out(len(train), plan.validation, plan.seed, number)
    rows = ((whole.train, train[~held]), (tested, test), (whole.train, train[held]))
    parts = [prepared.cut(pool, chosen) for pool, chosen in rows]
    client = FixedClient(form.shape, form.num_outputs, form.task, (parts[0], parts[1], parts[2]))
    return OwnData(number, client, 0, plan, fitting)


def is_own_file(spec: str) -> bool:
    """Return whether `read_own` can read a SPEC."""
    return ".py:" in spec or spec.endswith((*TABLES, ARRAYS)) or Path(spec).expanduser().is_dir()


def _read(spec: str, plan: DataPlan) -> Whole:
    path = Path(spec).expanduser()
    if ".py:" in spec:
        return _read_function(spec, plan)
    if spec.endswith(TABLES):
        return _read_table(path, plan)
    if spec.endswith(ARRAYS):
        return _from_arrays(_load_arrays([path]), plan, spec)
    if files := sorted(path.glob("*.npy")):
        return _from_arrays(_load_arrays(files), plan, spec)
    return _read_images(path, plan)


def _read_table(path: Path, plan: DataPlan) -> Whole:
    if plan.task == "labels":
        raise DataError(f"{path}: the server predicts labels, which a table cannot hold; give arrays")
    rows = read_table(path)
    target = plan.target
    if target is None:
        others = [name for name in rows.columns if name not in plan.columns]
        if len(others) != 1:
            found = ", ".join(others) or "none"
            raise DataError(
                f"{path}: expected one column besides the inputs, the one to predict, got {found}; set data.target on "
                "the server"
            )
        target = others[0]
    if plan.columns:  # before the table reports problems in columns that do not belong here
        order_of(plan.columns, [name for name in rows.columns if name != target], f"{path}: columns")
    remedy = "write it as numbers in this file, as the server's model expects"
    return whole_of_tables(
        rows, rows.take(slice(0)), target=target, task=plan.task, input_remedy=remedy, target_remedy=remedy
    )


def _read_images(path: Path, plan: DataPlan) -> Whole:
    if len(plan.shape) != 3 or plan.shape[0] not in (1, 3) or plan.shape[1] != plan.shape[2] or not plan.shape[1]:
        raise DataError(
            f"{path}: a folder of images has inputs of shape [1 or 3, size, size], but the server's are "
            f"{list(plan.shape)}; give arrays"
        )
    colours: Any = "rgb" if plan.shape[0] == 3 else "grey"
    return Images(folder=str(path), size=plan.shape[1], colours=colours, test_fraction=0.0).whole()


def _read_function(spec: str, plan: DataPlan) -> Whole:
    function = load_function(spec, "--data")
    try:
        loaded = function()
    except Exception as error:
        raise DataError(f"--data: {spec} failed: {describe(error, spec)}") from error
    if isinstance(loaded, tuple | list) and len(loaded) == 2 and not _is_array(loaded[0]):
        loaded = stack_both(loaded)
    if isinstance(loaded, tuple | list) and len(loaded) in (2, 4):
        loaded = dict(zip(NAMES, loaded, strict=False))
    if not isinstance(loaded, Mapping):
        raise DataError(
            f"--data: {spec}: expected (x_train, y_train, x_test, y_test), (x, y), two data sets or a dictionary of "
            f"arrays, got {type(loaded).__name__}"
        )
    return _from_arrays(loaded, plan, spec)


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray | Tensor | list | tuple)


def _load_arrays(paths: list[Path]) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for path in paths:
        try:
            loaded = np.load(path, allow_pickle=False)
            found |= {path.stem: loaded} if isinstance(loaded, np.ndarray) else {key: loaded[key] for key in loaded}
        except (OSError, ValueError, EOFError, KeyError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
            raise DataError(f"{path} cannot be read as NumPy arrays: {error}; write it again") from error
    return found


def _from_arrays(arrays: Mapping[str, Any], plan: DataPlan, spec: str) -> Whole:
    """Return the data set in x_train, y_train and optionally x_test, y_test; `x` and `y` stand for the first two."""
    given = {{"x": "x_train", "y": "y_train"}.get(name, name): value for name, value in arrays.items()}
    known = {*NAMES, *_ORDERS}
    if unknown := sorted(set(map(str, given)) - known):
        raise DataError(f"{spec}: unknown array {unknown[0]!r}; expected {', '.join(sorted(known))}")
    if ("x_train" not in given) or ("y_train" not in given) or ("x_test" in given) != ("y_test" in given):
        raise DataError(f"{spec}: expected x_train and y_train, optionally x_test and y_test; got {', '.join(given)}")
    classes, columns = (_names(given.get(name, ()), f"{spec}: {name}") for name in _ORDERS)
    targets = {part: given[f"y_{part}"] for part in ("train", "test") if f"y_{part}" in given}
    if plan.task == "classes" and all(np.asarray(y).dtype.kind == "U" for y in targets.values()):
        classes = tuple(sorted({str(name) for y in targets.values() for name in np.asarray(y).tolist()}))
        targets = {part: np.searchsorted(classes, np.asarray(y)) for part, y in targets.items()}
    try:
        pools = {part: _pool(given[f"x_{part}"], y, part, plan) for part, y in targets.items()}
    except DataError as error:
        raise DataError(f"{spec}: {error}") from error
    train = pools["train"]
    test = pools.get("test") or without_samples(train)
    if train.x.shape[1:] != test.x.shape[1:] or train.y.shape[1:] != test.y.shape[1:]:
        raise DataError(f"{spec}: training and test samples must have the same shape")
    numbers = [int(pool.y.max()) + 1 for pool in pools.values()] if plan.task == "classes" else [train.y.shape[1]]
    num_outputs = max(numbers)
    if classes and num_outputs > len(classes):
        raise DataError(f"{spec}: output {num_outputs - 1} has no name: `classes` has {len(classes)}")
    return Whole(
        train,
        test,
        num_outputs=len(classes) or num_outputs,
        task=plan.task,
        words=plan.words,
        classes=classes,
        features=columns,
    )


def _pool(x: object, y: object, part: str, plan: DataPlan) -> SamplePool:
    targets = to_array(y, f"y_{part}")
    if plan.task != "classes":
        targets = targets.astype(np.float64)  # integers may be values and labels too
    elif targets.dtype.kind == "f":
        raise DataError(f"y_{part}: the server predicts classes, which are integers or names, got {targets.dtype}")
    pool = sample_pool(to_array(x, f"x_{part}"), targets, part, plan.words)
    if plan.task == "labels" and not torch.isin(pool.y, torch.tensor([0.0, 1.0])).all():
        raise DataError(f"y_{part}: labels must be 0 or 1, got other values")
    return pool


def _names(given: Any, what: str) -> tuple[str, ...]:
    names = np.asarray(given)
    if names.size and (names.ndim != 1 or names.dtype.kind != "U"):
        raise DataError(f"{what}: expected names, got {names.dtype} of shape {list(names.shape)}")
    return tuple(map(str, names.tolist()))
