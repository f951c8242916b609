"""A data set that a user's function loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from msgspec import Meta, field
from torch import Tensor
from torch.utils.data import Dataset

from fedge.core.errors import DataError
from fedge.core.parts import explain, origin_of
from fedge.data.apportionment import hold_out
from fedge.data.data_plan import Share
from fedge.data.divided_dataset import Divided
from fedge.data.whole import SamplePool, Whole

NUM_READ_AGAIN = 64
"""Items of a PyTorch data set that are read twice, to detect random transforms."""
NAMES = ("x_train", "y_train", "x_test", "y_test")


class UserData(Divided, tag=False, kw_only=True):
    """Arrays or tensors (x_train, y_train, x_test, y_test) that a function in a user's file returns.

    Integer targets `[n]` are classes, counted from 0; floating-point ones `[n]` or `[n, k]` are values to predict.
    Instead, the function may return two map-style PyTorch data sets (train, test) with items (input, target), or one,
    of which the last samples of each class are for the test. Items are read once, so transforms must not be random; use
    `data.augment` for random changes. Names in the attribute `classes` of such a data set are kept. A dictionary as the
    last element has columns to split by: `{"user": (train_users, test_users)}`.
    """

    function: ClassVar[Callable[..., Any]]
    options: Annotated[dict[str, Any], Meta(description="Keyword arguments of the function.")] = field(
        default_factory=dict
    )
    words: Annotated[
        bool, Meta(description="Inputs are indexes of words or characters and stay integers, for an embedding.")
    ] = False

    test_fraction: Annotated[
        Share, Meta(description="For a single PyTorch data set: share of each class for the test.")
    ] = 0.2

    def whole(self, train: bool = True) -> Whole:
        try:
            loaded = self.function(**self.options)
        except Exception as error:
            raise DataError(f"data.name: {explain(error, self)}") from error
        try:
            return check_arrays(loaded, self.words, self.test_fraction)
        except DataError as error:
            raise DataError(f"data.name: {origin_of(self).name}: {error}") from error


def check_arrays(loaded: object, words: bool = False, test_fraction: float = 0.2) -> Whole:
    """Return the whole data set; a DataError that states the problem if it cannot be trained on."""
    loaded, columns = _without_columns(loaded)
    names: tuple[str, ...] = ()
    if isinstance(loaded, Dataset):
        names = _class_names(loaded)
        loaded = _halves(*stack(loaded, "the data set"), test_fraction)
    elif isinstance(loaded, tuple | list) and len(loaded) == 2:
        names = _class_names(loaded[0])
        loaded = stack_both(loaded)
    if not isinstance(loaded, tuple | list) or len(loaded) != len(NAMES):
        count = f" of {len(loaded)}" if isinstance(loaded, tuple | list) else ""
        raise DataError(f"expected a tuple ({', '.join(NAMES)}), got {type(loaded).__name__}{count}")
    arrays = {name: to_array(value, name) for name, value in zip(NAMES, loaded, strict=True)}
    train, test = (sample_pool(arrays[f"x_{part}"], arrays[f"y_{part}"], part, words) for part in ("train", "test"))
    if train.x.shape[1:] != test.x.shape[1:]:
        shapes = f"{list(train.x.shape)} and {list(test.x.shape)}"
        raise DataError(f"inputs in x_train and x_test must have the same shape, got {shapes}")
    if train.y.dtype != test.y.dtype or train.y.shape[1:] != test.y.shape[1:]:
        kinds = " and ".join(f"{array.dtype} {list(array.shape)}" for array in (arrays["y_train"], arrays["y_test"]))
        raise DataError(f"y_train and y_test must both be classes, or values of the same shape, got {kinds}")
    for name, pair in columns.items():
        lengths = [len(column) for column in pair]
        if lengths != [len(train.y), len(test.y)]:
            raise DataError(f"column {name!r}: expected {len(train.y)} and {len(test.y)} entries, got {lengths}")
    if train.y.is_floating_point():
        return Whole(train, test, num_outputs=train.y.shape[1], task="values", words=words, columns=columns)
    highest, highest_test = int(train.y.max()), int(test.y.max())
    if highest_test > highest:
        raise DataError(f"y_test has class {highest_test}, but the highest class of y_train is {highest}")
    if len(names) <= highest:  # names of something else
        names = ()
    return Whole(train, test, num_outputs=len(names) or highest + 1, words=words, columns=columns, classes=names)


def _class_names(dataset: object) -> tuple[str, ...]:
    """Return the names of classes if the data set has them, as those of torchvision do."""
    names = getattr(dataset, "classes", None)
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(names) if len(set(names)) == len(names) else ()


def _halves(x: np.ndarray, y: np.ndarray, test_fraction: float) -> list[np.ndarray]:
    """Return x_train, y_train, x_test and y_test: the last of each class, or of all values, are for the test."""
    train, test = hold_out(y if y.ndim == 1 and y.dtype.kind in "biu" else np.zeros(len(y)), test_fraction)
    if not len(test):
        raise DataError(
            f"none of {len(y)} samples is left for the test; return (train, test), or raise data.test_fraction"
        )
    return [x[train], y[train], x[test], y[test]]


def _without_columns(loaded: object) -> tuple[object, dict[str, tuple[np.ndarray, np.ndarray]]]:
    if not isinstance(loaded, tuple | list) or not loaded or not isinstance(loaded[-1], dict):
        return loaded, {}
    columns = {}
    for name, pair in loaded[-1].items():
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DataError(f"column {name!r}: expected a pair (training, test) of columns, got {type(pair).__name__}")
        columns[str(name)] = (np.asarray(pair[0]), np.asarray(pair[1]))
    return loaded[:-1], columns


def stack_both(datasets: Sequence[Any]) -> list[np.ndarray]:
    """Return x_train, y_train, x_test and y_test of two map-style data sets."""
    return [side for part, name in zip(datasets, ("train", "test"), strict=True) for side in stack(part, name)]


def stack(dataset: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs and targets of a map-style data set, which needs a length and items."""
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise DataError(f"{name}: expected a map-style data set with a length and items, got {type(dataset).__name__}")
    items = [dataset[row] for row in range(len(dataset))]
    if not items or any(not isinstance(item, tuple | list) or len(item) != 2 for item in items):
        raise DataError(f"{name}: expected a data set with at least one item, each a pair (input, target)")
    for row in np.linspace(0, len(items) - 1, NUM_READ_AGAIN).astype(int).tolist():
        if any(
            np.asarray(a).tobytes() != np.asarray(b).tobytes() for a, b in zip(items[row], dataset[row], strict=True)
        ):
            raise DataError(
                f"{name}: item {row} differs when it is read again, so a transform is random, but each item is read "
                "only once. Remove the transform, and set data.augment to flip and crop images"
            )
    try:
        return np.stack([np.asarray(x) for x, _ in items]), np.stack([np.asarray(y) for _, y in items])
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{name}: expected inputs of equal shape and targets of equal shape, such as tensors: {error}"
        ) from error


def to_array(value: object, name: str) -> np.ndarray:
    """Return an array of numbers; a DataError if the value is not one."""
    try:
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{name}: expected an array or a tensor, got {type(value).__name__} ({error})") from error
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name}: expected an array or a tensor of numbers, got {array.dtype}")
    return array


def sample_pool(x: np.ndarray, y: np.ndarray, part: str, words: bool) -> SamplePool:
    """Return the samples; a DataError that states the problem with x_part or y_part if they cannot be trained on."""
    if x.ndim < 2:
        raise DataError(f"x_{part}: expected one row per sample, [n, ...], got shape {list(x.shape)}")
    if y.ndim == 0 or len(x) != len(y):
        shapes = f"{list(x.shape)} and {list(y.shape)}"
        raise DataError(f"x_{part} and y_{part} must have one entry per sample, got shapes {shapes}")
    if 0 in x.shape:
        raise DataError(f"x_{part}: expected at least one sample and one feature, got shape {list(x.shape)}")
    return SamplePool(check_inputs(x, f"x_{part}", words), _targets(y, f"y_{part}"))


def check_inputs(x: np.ndarray, name: str, words: bool) -> Tensor:
    """Return inputs as float32, or as int64 if they are words; a DataError if they are invalid."""
    return _words(x, name) if words else _finite(x, name)


def _words(x: np.ndarray, name: str) -> Tensor:
    if x.dtype.kind not in "iu" or x.min() < 0:
        raise DataError(f"{name}: data.words expects integers of at least 0, got {x.dtype} with minimum {x.min()}")
    return torch.from_numpy(x.astype(np.int64))


def _targets(y: np.ndarray, name: str) -> Tensor:
    if y.dtype.kind == "f":
        if y.ndim > 2 or 0 in y.shape:
            raise DataError(f"{name}: expected values [n] or [n, k], got shape {list(y.shape)}")
        return _finite(y, name).view(len(y), -1)
    if y.ndim != 1:
        raise DataError(f"{name}: expected classes [n], got shape {list(y.shape)} of {y.dtype}")
    classes = y.astype(np.int64)
    if classes.min() < 0:
        raise DataError(f"{name}: classes must be at least 0, got {classes.min()}")
    return torch.from_numpy(classes)


def _finite(array: np.ndarray, name: str) -> Tensor:
    with np.errstate(over="ignore"):  # overflow becomes infinite, and is reported as such
        numbers = np.array(array, np.float32, order="C")
    num_bad = numbers.size - np.count_nonzero(np.isfinite(numbers))
    if num_bad:
        raise DataError(f"{name}: {num_bad} of {numbers.size} numbers are NaN, infinite or beyond float32; remove them")
    return torch.from_numpy(numbers)
