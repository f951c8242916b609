"""Clients' own files: columns and classes matched by name to the server's order, or refused with the names."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedge.core.errors import ConfigError, DataError
from fedge.data.data_plan import DataPlan
from fedge.data.digits import Digits
from fedge.data.divided_dataset import Noise
from fedge.data.normalise import Scaling
from fedge.data.remote import Remote
from fedge.data.validation import choose_held_out
from fedge.net.client_data import load_spec

X = np.arange(20, dtype=np.float32).reshape(10, 2)
Y = np.arange(10) % 2


def plan(**options: Any) -> DataPlan:
    return Remote(**{"shape": [2], "outputs": 2, "test_fraction": 0.0} | options).server_part(3).plan


def csv(folder: Path, text: str) -> str:
    (folder / "t.csv").write_text(text)
    return str(folder / "t.csv")


def function(folder: Path, body: str) -> str:
    (folder / "my.py").write_text(f"import numpy as np\nimport torch\n\ndef load():\n    {body}\n")
    return f"{folder / 'my.py'}:load"


def test_columns_and_classes_of_a_table_are_matched_by_name(tmp_path: Path) -> None:
    spec = csv(tmp_path, "b,kind,a\n1,dog,2\n3,cat,4\n5,dog,6\n")
    wanted = plan(outputs=3, columns=["a", "b"], classes=["fish", "dog", "cat"])
    assert load_spec(spec).named is None
    own = load_spec(spec).load(wanted, 7)
    x, y = own.train(7, 1)
    assert (x.tolist(), y.tolist()) == ([[2, 1], [4, 3], [6, 5]], [1, 2, 1])
    assert own.facts._asdict() == {
        "shape": (2,),
        "num_outputs": 3,
        "task": "classes",
        "size": 3,
        "test_size": 0,
        "validation_size": 0,
        "noisy": False,
    }


def test_a_table_of_values_and_a_parquet_file(tmp_path: Path) -> None:
    spec = csv(tmp_path, "price,a,b\n1.5,1,2\n2.5,3,4\n")
    own = load_spec(spec).load(plan(outputs=1, task="values", columns=["b", "a"], target="price"), 0)
    assert own.train(0, 1).x.tolist() == [[2, 1], [4, 3]]
    assert own.train(0, 1).y.tolist() == [[1.5], [2.5]]
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.read_csv(spec).to_parquet(tmp_path / "t.parquet")
    again = load_spec(str(tmp_path / "t.parquet")).load(plan(outputs=1, task="values", columns=["b", "a"]), 0)
    assert torch.equal(again.train(0, 1).x, own.train(0, 1).x)


@pytest.mark.parametrize(
    ("header", "options", "problem"),
    [
        ("a,c,kind", {}, "expected one column besides the inputs, .*, got c, kind; set data.target"),
        ("a,c,kind", {"target": "kind"}, "columns: missing 'b'; expected 'a', 'b', got 'a', 'c'"),
        ("a,b,c,kind", {"target": "kind"}, "columns: unknown 'c'; expected 'a', 'b'"),
        ("a,b,kind", {"target": "label"}, "columns: unknown 'kind'"),
        ("a,b,kind", {"columns": []}, "got a, b, kind; set data.target"),
        ("a,b,kind", {"columns": [], "target": "kind"}, "the server has none.* set data.columns on the server"),
        ("a,b,kind", {"classes": ["cat", "cow"]}, "unknown classes 'dog'; expected 'cat', 'cow'"),
        ("a,b,kind", {"classes": []}, "unknown classes 'cat', 'dog'; expected 0 to 1, since the server sets no"),
        ("a,b,kind", {"task": "labels"}, "labels, which a table cannot hold"),
        (
            "a,b,kind",
            {"task": "values", "classes": []},
            r"column 'kind': expected numbers, got text \('dog' in row 2\); write it as numbers in this file",
        ),
        ("kind,b,a", {}, r"column 'a': expected numbers, got text .*; write it as numbers in this file"),
    ],
)
def test_mismatched_table(tmp_path: Path, header: str, options: dict[str, Any], problem: str) -> None:
    inputs = ",".join("1" for _ in header.split(",")[:-1])
    spec = csv(tmp_path, f"{header}\n{inputs},dog\n{inputs},cat\n")
    with pytest.raises(DataError, match=problem):
        load_spec(spec).load(plan(**{"columns": ["a", "b"], "classes": ["cat", "dog"]} | options), 0)


def test_labels_in_a_table_may_be_numbers(tmp_path: Path) -> None:
    spec = csv(tmp_path, "a,b,kind\n1,2,7\n3,4,3\n")
    assert load_spec(spec).load(plan(outputs=10, columns=["a", "b"]), 0).train(0, 1).y.tolist() == [7, 3]
    names = [str(number) for number in range(9, -1, -1)]
    own = load_spec(spec).load(plan(outputs=10, columns=["a", "b"], classes=names), 0)
    assert own.train(0, 1).y.tolist() == [2, 6]


@pytest.mark.parametrize("form", ["npz", "folder", "function", "pair", "mapping", "data sets"])
def test_arrays_in_every_format(tmp_path: Path, form: str) -> None:
    wanted = plan()
    if form == "npz":
        np.savez(tmp_path / "d.npz", x_train=X, y_train=Y, x_test=X[:3], y_test=Y[:3])
        spec = str(tmp_path / "d.npz")
    elif form == "folder":
        for name, array in (("x_train", X), ("y_train", Y), ("x_test", X[:3]), ("y_test", Y[:3])):
            np.save(tmp_path / f"{name}.npy", array)
        spec = str(tmp_path)
    else:
        made = "x, y = np.arange(20, dtype='f4').reshape(10, 2), np.arange(10) % 2\n    "
        bodies = {
            "function": "return x, y, x[:3], y[:3]",
            "pair": "return torch.from_numpy(x), torch.from_numpy(y)",
            "mapping": "return {'x': x, 'y': y, 'x_test': x[:3], 'y_test': y[:3]}",
            "data sets": "full = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))\n"
            "    return full, torch.utils.data.Subset(full, range(3))",
        }
        spec = function(tmp_path, made + bodies[form])
    own = load_spec(spec).load(wanted, 2)
    assert torch.equal(own.train(2, 1).x, torch.from_numpy(X))
    assert own.train(2, 1).y.tolist() == Y.tolist()
    assert len(own.test(2, 1)) == (0 if form == "pair" else 3)


def test_names_of_arrays(tmp_path: Path) -> None:
    names = np.array(["dog", "cat"])
    np.savez(tmp_path / "named.npz", x=X, y=Y, classes=names, columns=np.array(["b", "a"]))
    np.savez(tmp_path / "words.npz", x=X, y=names[Y], columns=np.array(["b", "a"]))
    wanted = plan(outputs=3, classes=["ant", "cat", "dog"], columns=["a", "b"])
    for file in ("named.npz", "words.npz"):
        x, y = load_spec(str(tmp_path / file)).load(wanted, 0).train(0, 1)
        assert torch.equal(x, torch.from_numpy(X[:, ::-1].copy()))
        assert y.tolist() == [2, 1] * 5
    np.savez(tmp_path / "unnamed.npz", x=X, y=names[Y])
    with pytest.raises(DataError, match=r"the server matches columns by name .*'a', 'b'.*give them as `columns`"):
        load_spec(str(tmp_path / "unnamed.npz")).load(wanted, 0)


def test_labels_are_matched_by_name_too(tmp_path: Path) -> None:
    y = np.stack([Y, 1 - Y, np.ones(10)], 1)
    np.savez(tmp_path / "d.npz", x=X, y=y, classes=np.array(["a", "b", "c"]))
    own = load_spec(str(tmp_path / "d.npz")).load(plan(outputs=3, task="labels", classes=["c", "a", "b"]), 0)
    assert own.train(0, 1).y.tolist() == y[:, [2, 0, 1]].tolist()
    with pytest.raises(DataError, match="targets: missing 'd'"):
        load_spec(str(tmp_path / "d.npz")).load(plan(outputs=3, task="labels", classes=["d", "a", "b"]), 0)


@pytest.mark.parametrize(
    ("arrays", "options", "problem"),
    [
        ({"x": X}, {}, "expected x_train and y_train, optionally x_test and y_test; got x_train"),
        ({"x": X, "y": Y, "x_test": X}, {}, "optionally x_test and y_test"),
        ({"x": X, "y": Y, "z": Y}, {}, "unknown array 'z'"),
        ({"x": X[:4], "y": Y}, {}, "one entry per sample"),
        ({"x": X * np.nan, "y": Y}, {}, "NaN, infinite"),
        ({"x": X, "y": Y * 1.0}, {}, "predicts classes, which are integers or names, got float64"),
        ({"x": X, "y": Y + 1}, {}, "expected classes from 0 to 1, got class 2"),
        ({"x": X, "y": Y + 2**60}, {"classes": ["0", "1"]}, "unknown classes '2'; expected '0', '1'"),
        ({"x": X, "y": Y - 1}, {}, "classes must be at least 0, got -1"),
        ({"x": X[:, :1], "y": Y}, {}, r"expected inputs of shape \[2\], got \[1\]"),
        ({"x": X, "y": Y}, {"classes": ["cat", "dog"]}, "unknown classes '0', '1'; expected 'cat', 'dog'"),
        ({"x": X, "y": Y, "classes": Y}, {}, "classes: expected names, got int64"),
        (
            {"x": X, "y": Y, "classes": np.array(["a", "a"])},
            {"classes": ["a", "b"]},
            "names must be unique, got 'a' twice",
        ),
        ({"x": X, "y": Y, "classes": np.array(["a"])}, {"classes": ["a", "b"]}, "output 1 has no name"),
        ({"x": X, "y": X}, {"task": "labels"}, "labels must be 0 or 1"),
        ({"x": X, "y": X}, {"task": "values", "outputs": 3}, "expected 3 targets per sample, got 2"),
        ({"x": X, "y": Y}, {"words": True}, "expects integers of at least 0"),
        ({"x": X[:0], "y": Y[:0]}, {}, "expected at least one sample"),
        ({"x": np.array([{}] * 10), "y": Y}, {}, "cannot be read as NumPy arrays: Object arrays"),
    ],
)
def test_mismatched_arrays(tmp_path: Path, arrays: dict[str, Any], options: dict[str, Any], problem: str) -> None:
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(DataError, match=problem):
        load_spec(str(tmp_path / "d.npz")).load(plan(**options), 0)


def test_a_damaged_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=X, y=Y)
    whole = (tmp_path / "d.npz").read_bytes()
    for content in (b"", whole[:40], whole[:-60], whole[:100] + b"\xff" * 20 + whole[120:]):
        (tmp_path / "d.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"d\.npz"):
            load_spec(str(tmp_path / "d.npz")).load(plan(), 0)


@pytest.mark.parametrize("layout", ["CLASS", "train/CLASS"])
def test_a_folder_of_images(tmp_path: Path, layout: str) -> None:
    image = pytest.importorskip("PIL.Image")
    parts = [""] if layout == "CLASS" else ["train", "test"]
    for part in parts:
        for value, name in enumerate(("cat", "dog")):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for number in range(5):
                image.new("RGB", (6, 6), (value * 255, 0, 0)).save(folder / f"{number}.png")
    wanted = plan(shape=[3, 4, 4], outputs=2, classes=["dog", "cat"], test_fraction=0.2)
    own = load_spec(str(tmp_path)).load(wanted, 0)
    x, y = own.train(0, 1)
    assert len(y) == (8 if layout == "CLASS" else 10)
    assert torch.equal((x[:, 0, 0, 0] == 1), y == 0)  # dogs are red
    assert own.test(0, 1).y.tolist() == ([1, 0] if layout == "CLASS" else [1] * 5 + [0] * 5)
    with pytest.raises(DataError, match="unknown classes 'cat', 'dog'; expected 0 to 1"):
        load_spec(str(tmp_path)).load(plan(shape=[3, 4, 4]), 0)
    with pytest.raises(DataError, match=r"shape \[1 or 3, size, size\]"):
        load_spec(str(tmp_path)).load(plan(shape=[3, 4, 5]), 0)


def test_held_out_samples_and_normalisation(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=X, y=Y)
    scaling = Scaling(mean=1.0, std=2.0)
    own = load_spec(str(tmp_path / "d.npz")).load(plan(test_fraction=0.4, validation=0.5, normalise=scaling), 5)
    kept = torch.from_numpy(X[:6])  # the last two of each class are for the test
    held = torch.from_numpy(choose_held_out(6, 0.5, 3, 5))
    assert torch.equal(own.train(5, 1).x, (kept[~held] - 1) / 2)
    assert torch.equal(own.validation(5, 1).x, (kept[held] - 1) / 2)
    assert torch.equal(own.test(5, 1).x, (torch.from_numpy(X[6:]) - 1) / 2)
    assert own.facts[3:6] == (3, 4, 3)


def test_sums_then_normalised(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=X, y=Y)
    own = load_spec(str(tmp_path / "d.npz")).load(plan(normalise=True), 5)
    sums = own.moments()
    assert (sums["count"], sums["sum"].tolist()) == (10, [90, 100])
    scaled = own.scaled(Scaling(mean=[9.0, 10.0], std=1.0))
    assert torch.equal(scaled.train(5, 1).x, torch.from_numpy(X) - torch.tensor([9.0, 10.0]))
    assert (scaled.number, scaled.facts) == (5, own.facts)


def test_own_files_with_a_server_data_set(tmp_path: Path) -> None:
    x = np.random.default_rng(1).random((6, 1, 28, 28), np.float32)
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(6))
    part = Digits(clients=3, normalise=True).server_part(1)
    own = load_spec(str(tmp_path / "d.npz")).load(part.plan, 0)
    assert part.plan.scaling is not None
    expected = part.plan.scaling.normaliser((1, 28, 28))(torch.from_numpy(x))
    assert torch.equal(own.train(0, 1).x, expected)
    noisy = Digits(noise=Noise(fraction=0.5, std=1.0)).server_part(1).plan
    with pytest.raises(DataError, match=r"the server sets data\.noise, which applies only to parts of its own"):
        load_spec(str(tmp_path / "d.npz")).load(noisy, 0)


def test_invalid_specs(tmp_path: Path) -> None:
    for spec in ("", "nothing", str(tmp_path / "no.csv"), str(tmp_path / "no")):
        with pytest.raises((ConfigError, DataError)):
            load_spec(spec).load(plan(), 0)
    (tmp_path / "d.txt").write_text("x")
    with pytest.raises(ConfigError, match=r"--data: expected FILE\.toml#NUMBER"):
        load_spec(str(tmp_path / "d.txt"))
    with pytest.raises(ConfigError, match="--data: there is no file"):
        load_spec(str(tmp_path / "no.py:load")).load(plan(), 0)
    for body, problem in (("raise KeyError('oh')", "failed: KeyError"), ("return 3", "got int")):
        with pytest.raises(DataError, match=problem):
            load_spec(function(tmp_path, body)).load(plan(), 0)
