from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedge.core.errors import ConfigError, DataError
from fedge.core.schema import choose, read
from fedge.data import DATASETS
from fedge.data.partition import Shards
from fedge.data.userdata import UserData, check_arrays

X, Y = np.arange(24.0).reshape(12, 2), np.arange(12) % 3


def write(folder: Path, body: str) -> str:
    path = folder / "mine.py"
    path.write_text(f"import numpy as np\n\ndef load(count=12):\n    {body}\n")
    return f"{path}:load"


def own(name: str) -> type[UserData]:
    kind = choose(name, DATASETS, "data.name")
    assert issubclass(kind, UserData)
    return kind


def test_user_data_is_divided_like_any_other(tmp_path: Path) -> None:
    name = write(tmp_path, "x = np.eye(count); y = np.arange(count) % 4; return x, y, x[:8], y[:8]")
    options = read({"options": {"count": 24}, "clients": 4, "partition": "shards"}, own(name), "data")
    assert options.partition == Shards()
    clients = options.build(seed=1)
    assert (clients.shape, clients.num_outputs, clients.task) == ((24,), 4, "classes")
    assert clients.sizes.tolist() == [6, 6, 6, 6]
    assert clients.train(0, 1).x.dtype == torch.float32


def test_error_in_the_function_names_file_and_line(tmp_path: Path) -> None:
    name = write(tmp_path, "raise KeyError('no')")
    with pytest.raises(DataError, match=r"data\.name: .*mine\.py:load failed: KeyError: 'no' \(line 4 of"):
        own(name)().build(seed=1)
    with pytest.raises(DataError, match="unexpected keyword argument 'size'"):
        own(name)(options={"size": 3}).build(seed=1)
    with pytest.raises(ConfigError, match=r"data\.name: .* defines no 'laod'"):
        own(name.replace("load", "laod"))().build(seed=1)


def test_errors_name_the_function(tmp_path: Path) -> None:
    name = write(tmp_path, "return 1")
    with pytest.raises(DataError) as caught:
        own(name)().build(seed=1)
    assert str(caught.value) == (f"data.name: {name}: expected a tuple (x_train, y_train, x_test, y_test), got int")


@pytest.mark.parametrize("y", [Y, Y.astype(np.uint8), torch.from_numpy(Y), Y.tolist(), Y.astype(">i4")], ids=str)
def test_integers_are_classes(y: Any) -> None:
    whole = check_arrays((X, y, X[:3], y[:3]))
    assert whole.num_outputs == 3
    assert whole.train.y.dtype == torch.int64
    assert whole.train.y.tolist() == Y.tolist()


def test_floats_are_values() -> None:
    whole = check_arrays((X, X[:, 0] * 0.5, X[:3], X[:3, 0] * 0.5))
    assert (whole.num_outputs, whole.task) == (1, "values")
    assert whole.train.y.shape == (12, 1)
    assert whole.train.y.dtype == torch.float32
    assert check_arrays((X, X * 0.5, X[:3], X[:3] * 0.5)).num_outputs == 2


def test_inputs_may_require_gradients_or_have_any_memory_order() -> None:
    whole = check_arrays((torch.from_numpy(X).requires_grad_(), Y, X[::-1], Y))
    assert torch.equal(whole.train.x, torch.arange(24.0).view(12, 2))
    assert torch.equal(whole.test.x, whole.train.x.flip(0))


def test_arrays_of_the_user_are_copied() -> None:
    x = X.astype(np.float32)
    whole = check_arrays((x, Y, x, Y))
    x[:] = 0
    assert whole.train.x[-1].tolist() == [22, 23]


WRONG = [
    ((X, Y, X), r"expected a tuple \(x_train, y_train, x_test, y_test\), got tuple of 3"),
    (({}, Y, X, Y), r"x_train: expected an array or a tensor of numbers, got object"),
    (([[1, 2], [3]], Y, X, Y), r"x_train: expected an array or a tensor, got list"),
    (
        (torch.zeros(12, 2, dtype=torch.bfloat16), Y, X, Y),
        r"x_train: expected an array or a tensor, got Tensor",
    ),
    ((X, np.array(["a"] * 12), X, Y), r"y_train: expected an array or a tensor of numbers, got <U1"),
    ((X, Y, X + 1j, Y), r"x_test: expected an array or a tensor of numbers, got complex128"),
    ((X[:, 0], Y, X, Y), r"x_train: expected one row per sample, \[n, \.\.\.\], got shape \[12\]"),
    (
        (X, Y[:5], X, Y),
        r"x_train and y_train must have one entry per sample, got shapes \[12, 2\] and \[5\]",
    ),
    ((X, Y, X, np.int64(3)), r"x_test and y_test must have one entry .* got shapes \[12, 2\] and \[\]"),
    ((X, Y, X[:0], Y[:0]), r"x_test: expected at least one sample and one feature, got shape \[0, 2\]"),
    (
        (X[:, :0], Y, X[:, :0], Y),
        r"x_train: expected at least one sample and one feature, got shape \[12, 0\]",
    ),
    (
        (X, Y, X[:, :1], Y),
        r"inputs in x_train and x_test must have the same shape, got \[12, 2\] and \[12, 1\]",
    ),
    ((X, Y, X, Y * 1.0), r"y_train and y_test must both be classes, .* got int64 \[12\] and float64 \[12\]"),
    (
        (X, X, X, X[:, 0]),
        r"y_train and y_test .* values of the same shape, got float64 \[12, 2\] and float64 \[12\]",
    ),
    ((X, Y[:, None], X, Y), r"y_train: expected classes \[n\], got shape \[12, 1\] of int64"),
    ((X, X[:, :, None], X, X), r"y_train: expected values \[n\] or \[n, k\], got shape \[12, 2, 1\]"),
    ((X, Y - 1, X, Y), r"y_train: classes must be at least 0, got -1"),
    ((X, Y, X, Y + 1), r"y_test has class 3, but the highest class of y_train is 2"),
    ((np.where(X == 5, np.nan, X), Y, X, Y), r"x_train: 1 of 24 numbers are NaN, infinite or beyond float32"),
    ((X, Y, X * 1e300, Y), r"x_test: 23 of 24 numbers are NaN, infinite or beyond float32"),
    ((X, X - np.inf, X, X), r"y_train: 24 of 24 numbers are NaN"),
]


@pytest.mark.parametrize(("loaded", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_invalid_arrays_are_rejected(loaded: tuple[Any, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_arrays(loaded)


class Pairs:
    """A map-style data set that is not a torch Dataset."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return torch.full((1, 2), float(row)), row % 3


def test_map_style_data_sets_are_stacked() -> None:
    whole = check_arrays((Pairs(6), Pairs(3)))
    assert whole.num_outputs == 3
    assert whole.train.x.shape == (6, 1, 2)
    assert whole.train.x[:, 0, 1].tolist() == [0, 1, 2, 3, 4, 5]
    assert whole.test.y.tolist() == [0, 1, 2]


def test_torch_data_sets_are_accepted() -> None:
    from torch.utils.data import TensorDataset

    made = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    assert torch.equal(check_arrays((made, made)).train.x, torch.arange(24.0).view(12, 2))


def test_single_torch_data_set_is_split_and_keeps_its_class_names() -> None:
    made = torch.utils.data.TensorDataset(torch.arange(20.0).view(10, 2), torch.tensor([0, 1] * 5))
    made.classes = ["cat", "dog", "ant"]  # as in torchvision
    whole = check_arrays(made)
    # Of each class the last fifth of five: rows 8 and 9.
    assert whole.test.x[torch.arange(2)].tolist() == [[16, 17], [18, 19]]
    assert (len(whole.train.y), whole.classes, whole.num_outputs) == (8, ("cat", "dog", "ant"), 3)
    made.classes = ["cat"]  # names of something else
    assert (check_arrays((made, made)).classes, check_arrays((made, made)).num_outputs) == ((), 2)
    with pytest.raises(DataError, match=r"none of 10 samples is left for the test; return \(train, test\), or raise"):
        check_arrays(made, test_fraction=0.1)


class Flipped(Pairs):
    """Flips every other item, as a random transform would."""

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        x, y = super().__getitem__(row)
        return (1 + x if torch.rand(()) < 0.5 else -1 - x), y


class Noted(Pairs):
    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.read: list[int] = []

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        self.read.append(row)
        x, y = super().__getitem__(row)
        return x * float("nan"), y  # compares equal by its bytes


@pytest.mark.parametrize("count", [2, 200])
def test_random_items_are_rejected(count: int) -> None:
    """64 items are read twice: the probability that none differs is 2^-64."""
    with pytest.raises(DataError, match=r"^test: item \d+ differs when .* set data\.augment to flip and crop images$"):
        check_arrays((Pairs(6), Flipped(count)))


def test_only_few_items_are_read_twice() -> None:
    made = Noted(1000)
    with pytest.raises(DataError, match="are NaN"):
        check_arrays((made, Pairs(3)))
    assert made.read[:1000] == list(range(1000))
    assert made.read[1000:] == np.linspace(0, 999, 64).astype(int).tolist()


@pytest.mark.parametrize(
    ("loaded", "message"),
    [
        ((Pairs(3), iter([])), "test: expected a map-style data set with a length and items, got list_iterator"),
        ((Pairs(3), Pairs(0)), "test: expected a data set with at least one item"),
        (([1, 2], Pairs(3)), r"train: expected a data set .* each a pair \(input, target\)"),
        (([([1], 0), ([1, 2], 0)], Pairs(3)), "train: expected inputs of equal shape and targets of equal shape"),
    ],
)
def test_other_objects_are_not_map_style_data_sets(loaded: tuple[Any, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_arrays(loaded)


def test_columns_can_be_split_by() -> None:
    users = np.array(["a", "b"] * 6)
    whole = check_arrays((X, Y, X[:3], Y[:3], {"user": (users, users[:3])}))
    assert whole.columns["user"][1].tolist() == ["a", "b", "a"]
    assert check_arrays((Pairs(2), Pairs(2), {"user": ([1, 2], [1, 2])})).columns["user"][0].tolist() == [1, 2]
    with pytest.raises(DataError, match=r"column 'user': expected 12 and 3 entries, got \[12, 2\]"):
        check_arrays((X, Y, X[:3], Y[:3], {"user": (users, users[:2])}))
    with pytest.raises(DataError, match="column 'user': expected a pair"):
        check_arrays((X, Y, X[:3], Y[:3], {"user": users}))


def test_words_stay_integers(tmp_path: Path) -> None:
    name = write(tmp_path, "x = np.arange(24).reshape(12, 2); y = np.arange(12) % 3; return x, y, x, y")
    clients = own(name)(words=True, clients=2).build(seed=1)
    assert clients.train(0, 1).x.dtype == torch.int64
    with pytest.raises(DataError, match=r"x_train: data\.words expects integers of at least 0, got float64"):
        check_arrays((X, Y, X, Y), words=True)
