"""In-memory data sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import polars
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from fedge.core.errors import DataError
from fedge.data.in_memory import Arrays, ClientSets, FrameTable, in_memory
from fedge.data.python_data import digest_samples
from fedge.data.whole import Whole

X, Y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
TENSORS = torch.tensor(X), torch.tensor(Y)


def whole(data: Any, *keys: str) -> Whole:
    source = in_memory(data)
    assert source is not None
    return source.whole(keys)


def rows(found: Whole) -> tuple[list[float], list[float]]:
    """Return the first number of each training sample and of each test sample."""
    return found.train.x[torch.arange(len(found.train.y))][:, 0].tolist(), found.test.x[
        torch.arange(len(found.test.y))
    ][:, 0].tolist()


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        [X.tolist(), Y.tolist()],
        (torch.tensor(X), torch.tensor(Y)),
        TensorDataset(torch.tensor(X), torch.tensor(Y)),
    ],
    ids=("arrays", "lists", "tensors", "data set"),
)
def test_the_last_samples_of_each_class_are_the_test_set(data: Any) -> None:
    found = whole(data)
    # of 10 samples of each class, two: rows 16 to 19, whose first numbers are twice as large
    assert rows(found) == ([2.0 * i for i in range(16)], [32.0, 34.0, 36.0, 38.0])
    assert found.test.y.tolist() == [0, 1, 0, 1]
    assert (found.num_outputs, found.task) == (2, "classes")
    assert digest_samples(found) == digest_samples(whole((X, Y)))


def test_separate_test_set() -> None:
    found = whole((X[:3], Y[:3], X[3:], Y[3:]))
    assert rows(found) == ([0.0, 2.0, 4.0], [2.0 * i for i in range(3, 20)])
    sets = [TensorDataset(torch.tensor(X[part]), torch.tensor(Y[part])) for part in (slice(3), slice(3, None))]
    assert digest_samples(whole(tuple(sets))) == digest_samples(found)


def test_every_change_changes_the_digest() -> None:
    other = X.copy()
    other[3, 1] += 1
    digests = {
        digest_samples(whole(data))
        for data in ((X, Y), (other, Y), (X, 1 - Y), (X.astype(np.float32), Y), Arrays(X, Y, test_fraction=0.5))
    }
    assert len(digests) == 4  # not by the type: inputs always become float32


def test_values_and_names() -> None:
    values = whole((X, X))
    assert (values.task, values.num_outputs, len(values.test.y)) == ("values", 2, 4)
    named = whole((X, np.array(["b", "a"])[Y]))
    assert (named.classes, named.train.y.tolist()[:3]) == (("a", "b"), [1, 0, 1])


def test_columns() -> None:
    users = np.arange(20) // 5
    found = Arrays(X, Y, columns={"user": users}).whole()
    train, test = found.columns["user"]
    assert [len(train), len(test)] == [16, 4]
    assert test.tolist() == [3, 3, 3, 3]
    with pytest.raises(DataError, match="column 'user': expected 20 entries, got 3"):
        Arrays(X, Y, columns={"user": users[:3]}).whole()


class Unlike(Dataset[tuple[float, int]]):
    """A data set whose items differ whenever they are read."""

    def __init__(self) -> None:
        self.count = 0

    def __len__(self) -> int:
        return 3

    def __getitem__(self, row: int) -> tuple[float, int]:
        self.count += 1
        return float(self.count), 0


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ((X, Y[:19]), r"data: expected x and y to have one entry per sample, got shapes \[20, 2\] and \[19\]"),
        ((X, Y, X), r"data: expected \(x, y\), .* got 3 values; for one data set per client pass fedge\.Clients"),
        (X, r"data: expected inputs and targets, got one array; pass \(x, y\)"),
        ((X, Y - 1), "classes must be at least 0, got -1"),
        ((np.array([["a"]] * 20), Y), "x_train: expected an array or a tensor of numbers"),
        ((X[:4], np.arange(4)), "test_fraction: 0.2 of each class is less than one sample"),
        (([[1], [1, 2]], [0, 1]), "data: expected an array or a tensor, got list"),
        (Unlike(), "data: item 0 differs when it is read again"),
        ((X, np.where(Y > 0, X[:, 0], np.nan)), "y_train: .* numbers are NaN"),
    ],
)
def test_errors_name_the_problem(data: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        whole(data)


def test_x_test_without_y_test() -> None:
    with pytest.raises(DataError, match="expected both x_test and y_test or neither"):
        Arrays(X, Y, X)
    with pytest.raises(DataError, match=r"data\.test_fraction: expected a number above 0 and below 1, got 1\.5"):
        Arrays(X, Y, test_fraction=1.5)


def test_other_objects_are_not_data() -> None:
    assert [in_memory(each) for each in (3, "digits", {"name": "digits"}, None)] == [None] * 4


TABLE = {"age": [20, 30, 40, 50, 60], "user": ["u", "v", "u", "v", "u"], "target": ["no", "yes", "no", "yes", "no"]}


@pytest.mark.parametrize("library", [pandas, polars], ids=lambda module: module.__name__)
def test_a_data_frame(library: Any) -> None:
    frame = library.DataFrame(TABLE)
    found = FrameTable(frame, "target", ignore=["user"]).whole()
    assert rows(found) == ([20.0, 30.0, 40.0, 50.0], [60.0])
    assert (found.classes, found.features) == (("no", "yes"), ("age",))
    by_user = FrameTable(frame, "target", test_fraction=0.4).whole(["user"])
    assert by_user.columns["user"][0].tolist() == ["u", "v", "u", "v"]  # of three the last one, of two none
    assert by_user.features == ("age",)
    assert digest_samples(whole(library.DataFrame(TABLE), "user")) == digest_samples(
        FrameTable(frame, "target").whole(["user"])
    )
    test = FrameTable(frame, "target", ignore=["user"], test=frame).whole()
    assert rows(test)[1] == TABLE["age"]


def test_floating_targets_are_values() -> None:
    frame = pandas.DataFrame({"a": [1, 2, 3, 4, 5], "b": [0.5, 1.5, 2.5, 3.5, 4.5]})
    assert FrameTable(frame, "b").whole().task == "values"
    assert FrameTable(frame, "b", test=frame, task="classes").whole().num_outputs == 5


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: whole(pandas.DataFrame({"a": [1]})), r"expected a column 'target', got a; pass fedge\.Table"),
        (
            lambda: FrameTable(pandas.DataFrame(TABLE), "targt").whole(),
            r"the data frame has no column 'targt', did you mean 'target'\?; it has age, user, target",
        ),
        (
            lambda: FrameTable(pandas.DataFrame(TABLE), "target").whole(),
            r"the data frame, column 'user': expected numbers, got text \('u' in row 0\); encode it as",
        ),
        (lambda: FrameTable(pandas.DataFrame(TABLE)[:0], "target").whole(), "expected at least one row"),
        (lambda: FrameTable([1, 2], "target").whole(), "expected a pandas or polars data frame, or the path of a file"),
        (lambda: FrameTable(pandas.DataFrame(TABLE), "target", task="class").whole(), r"data\.task: expected"),  # type: ignore[arg-type]
        (
            lambda: FrameTable(pandas.DataFrame([[1, 2]], columns=["a", "a"]), "a").whole(),
            "two columns have the name 'a'",
        ),
    ],
)
def test_errors_about_a_frame(make: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        make()


def test_a_table_in_a_file() -> None:
    settings = FrameTable("mine.csv", "y", test="test.csv", task="values", validation=0.1).file_settings
    assert settings == {
        "name": "table",
        "file": "mine.csv",
        "target": "y",
        "ignore": [],
        "test_fraction": 0.2,
        "normalise": True,
        "validation": 0.1,
        "test_file": "test.csv",
        "task": "values",
    }
    assert FrameTable(pandas.DataFrame(TABLE), "target").file_settings is None


def test_one_data_set_per_client() -> None:
    pairs = [((X[:3], Y[:3]), (X[3:4], Y[3:4])), (TensorDataset(torch.tensor(X[4:9]), torch.tensor(Y[4:9])), None)]
    found = ClientSets(pairs).whole()
    assert found.columns["client"][0].tolist() == ["00000000"] * 3 + ["00000001"] * 5
    assert found.columns["client"][1].tolist() == ["00000000"]
    assert rows(found) == ([0.0, 2.0, 4.0, 8.0, 10.0, 12.0, 14.0, 16.0], [6.0])


@pytest.mark.parametrize(
    ("clients", "says"),
    [
        ([], "expected at least one client, got none"),
        ([(X, Y, X, Y)], r"client 0: expected a pair \(train, test\), got tuple"),
        ([((X, Y), None)], "no client has test samples"),
        ([((X, Y), (X, Y)), ((X[:0], Y[:0]), None)], "client 1: expected at least one training sample"),
        ([((X, Y[:3]), None)], "client 0, train: x and y must have one entry per sample, got 20 and 3"),
        ([((X, Y), (X, Y)), ((X[:, :1], Y), None)], "all clients' samples must have the same shape"),
    ],
)
def test_errors_about_clients(clients: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        ClientSets(clients).whole()


def test_a_hugging_face_data_set() -> None:
    datasets = pytest.importorskip("datasets", reason="needs the extra `huggingface`")
    columns = {"a": list(range(10)), "who": ["u", "v"] * 5, "label": [0, 1] * 5}
    labels = datasets.ClassLabel(names=["no", "yes"])
    made = datasets.Dataset.from_dict(columns).cast_column("label", labels)
    found = whole(made, "who")
    assert (found.classes, found.features) == (("no", "yes"), ("a",))
    assert rows(found) == ([float(i) for i in range(8)], [8.0, 9.0])  # the last of each key
    splits = datasets.DatasetDict({"train": made, "test": made.select([0, 3])})
    assert rows(whole(splits, "who"))[1] == [0.0, 3.0]
    assert FrameTable(made, "a", ignore=["who"], task="values", test=made).whole().task == "values"
    with pytest.raises(DataError, match=r"the data set, split 'train'.*column 'who': expected numbers, got text"):
        whole(made)
    with pytest.raises(DataError, match="expected a split 'train', got test"):
        whole(datasets.DatasetDict({"test": made}))
