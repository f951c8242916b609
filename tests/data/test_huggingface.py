"""Hugging Face data sets, created by the tests and saved in a folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedge.core.errors import ConfigError, DataError, FedgeError
from fedge.core.schema import read
from fedge.data.huggingface import HuggingFace
from fedge.data.partition import Natural

pytestmark = pytest.mark.full  # the import alone takes seconds

ROWS = {
    "age": [20, 30, 40, 50],
    "income": [1.5, 2.5, 3.5, 4.5],
    "city": ["rome", "oslo", "rome", "oslo"],
    "label": ["yes", "no", "yes", "no"],
}


@pytest.fixture
def library() -> Iterator[Any]:
    found = pytest.importorskip("datasets")
    found.disable_progress_bars()
    yield found
    found.enable_progress_bars()


def save(library: Any, folder: Path, rows: dict[str, Any], **features: Any) -> str:
    """Save a data set without splits."""
    data = library.Dataset.from_dict(rows)
    for name, feature in features.items():
        data = data.cast_column(name, feature)
    data.save_to_disk(folder)
    return str(folder)


def test_numbers_text_classes_and_groups(library: Any, tmp_path: Path) -> None:
    folder = save(library, tmp_path / "set", ROWS)
    data = HuggingFace(folder=folder, partition=Natural(column="city"), test_fraction=0.5)
    clients = data.build(seed=1)
    assert (clients.shape, clients.num_outputs, clients.classes) == ((2,), 2, ("no", "yes"))
    assert clients.features == ("age", "income")
    # oslo before rome; the last row of each is for the test
    assert [clients.train(client, 1).x.tolist() for client in range(2)] == [[[30, 2.5]], [[20, 1.5]]]
    assert [clients.test(client, 1).y.tolist() for client in range(2)] == [[0], [1]]


def test_splits_and_class_labels_keep_their_order(library: Any, tmp_path: Path) -> None:
    label = library.ClassLabel(names=["dog", "cat", "ant"])
    parts = {}
    for name, labels in (("train", [0, 1, 0]), ("test", [2]), ("other", [1])):
        rows = library.Dataset.from_dict({"x": [[1, 2]] * len(labels), "kind": labels})
        parts[name] = rows.cast_column("kind", label)
    library.DatasetDict(parts).save_to_disk(tmp_path / "set")
    folder = str(tmp_path / "set")
    whole = HuggingFace(folder=folder, target="kind").whole()
    assert (whole.classes, whole.num_outputs) == (("dog", "cat", "ant"), 3)
    assert (whole.train.y.tolist(), whole.test.y.tolist()) == ([0, 1, 0], [2])
    assert whole.train.x[torch.arange(1)].tolist() == [[1, 2]]
    assert whole.train.x[torch.arange(1)].dtype == torch.float32
    assert HuggingFace(folder=folder, target="kind", words=True).whole().train.x[torch.arange(1)].dtype == torch.int64
    assert HuggingFace(folder=folder, target="kind", test="other").whole().test.y.tolist() == [1]
    with pytest.raises(DataError, match=r"data\.train: .* has no split 'trian', did you mean 'train'\?; it has train"):
        HuggingFace(folder=folder, target="kind", train="trian").whole()


def test_images(library: Any, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    image = np.zeros((4, 6, 3), np.uint8)
    image[..., 0] = 255
    rows = {"picture": [image] * 5, "label": [0, 1, 0, 1, 0]}
    features = library.Features({"picture": library.Image(), "label": library.ClassLabel(names=["a", "b"])})
    library.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "set")
    clients = HuggingFace(folder=str(tmp_path / "set"), clients=1).build(seed=1)
    assert clients.shape == (3, 4, 6)
    x, y = clients.train(0, 1)
    assert (x[:, 0].unique().tolist(), x[:, 1:].unique().tolist(), len(y)) == ([1], [0], 4)
    small = HuggingFace(folder=str(tmp_path / "set"), clients=1, size=2, colours="grey").build(seed=1)
    assert small.shape == (1, 2, 2)
    assert len(HuggingFace(folder=str(tmp_path / "set"), test_fraction=0).whole().test.y) == 0
    rows["picture"][1] = np.zeros((5, 6, 3), np.uint8)
    library.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "other")
    with pytest.raises(DataError, match=r"images differ in size, such as 4x6 and 5x6; set data\.size"):
        HuggingFace(folder=str(tmp_path / "other")).whole()


def test_values_are_predicted(library: Any, tmp_path: Path) -> None:
    folder = save(library, tmp_path / "set", ROWS)
    whole = HuggingFace(folder=folder, target="income", inputs=["age"], task="values", test_fraction=0.25).whole()
    assert (whole.task, whole.num_outputs, whole.train.y.tolist()) == ("values", 1, [[1.5], [2.5], [3.5]])


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (ROWS, {"target": "lable"}, r"has no column 'lable', did you mean 'label'\?"),
        (ROWS, {}, r"split 'train', column 'city': expected numbers, got text .* tokens need data\.words"),
        (ROWS, {"ignore": ["age", "income", "city"]}, "no column is left as an input"),
        ({"a": [1, None, 3], "label": [0, 1, 0]}, {}, r"row 2, column 'a': the value is missing"),
        ({"a": [1, 2, 3], "label": ["x", None, "y"]}, {}, r"row 2, column 'label': the value is missing"),
        ({"a": [[1], [1, 2]], "label": [0, 1]}, {}, r"column 'a': expected entries of equal length"),
        ({"a": [[1], [2]], "b": [1, 2], "label": [0, 1]}, {}, r"or one of images or arrays, got a, b; name one in"),
    ],
)
def test_errors_name_the_problem(
    library: Any, tmp_path: Path, rows: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    folder = save(library, tmp_path / "set", rows)
    with pytest.raises(DataError, match=message):
        read({"folder": folder, "test_fraction": 0, **options}, HuggingFace, "data").whole()


def test_sample_without_a_label(library: Any, tmp_path: Path) -> None:
    folder = save(library, tmp_path / "set", {"a": [1, 2], "label": [0, -1]}, label=library.ClassLabel(names=["x"]))
    with pytest.raises(DataError, match=r"row 2, column 'label': expected a class from 0 to 0, got -1"):
        HuggingFace(folder=folder).whole()


def test_where_it_is_loaded_from(library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ({}, {"folder": "a", "hub": "b/c"}):
        with pytest.raises(ConfigError, match=r"expected either data\.folder or data\.hub"):
            read(options, HuggingFace, "data")
    with pytest.raises(DataError, match=r"data\.folder: .*none cannot be loaded"):
        HuggingFace(folder=str(tmp_path / "none")).whole()
    asked: list[Any] = []

    def load_dataset(*names: Any, **options: Any) -> Any:
        asked.append((names, options))
        return library.DatasetDict({"train": library.Dataset.from_dict({"a": [1, 2], "label": [0, 1]})})

    monkeypatch.setattr(library, "load_dataset", load_dataset)
    data = HuggingFace(hub="owner/name", config="small", revision="v1", test_fraction=0)
    assert data.whole().train.y.tolist() == [0, 1]
    assert asked == [(("owner/name", "small"), {"revision": "v1"})]
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(FedgeError, match=r"pip install 'fedge\[huggingface\]'"):
        data.whole()
