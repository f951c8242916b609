import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedge.core.errors import DataError, FedgeError
from fedge.core.schema import read
from fedge.data.partition import Natural
from fedge.data.table import Table, read_table
from fedge.data.table_columns import TableColumns, whole_of_tables

ROWS = """age,income,city,label
20,1.5,rome,yes
30,2.5,oslo,no
40,3.5,rome,yes
50,4.5,oslo,maybe
"""
NATURAL = {"name": "natural", "column": "g"}


def write(folder: Path, text: str = ROWS, name: str = "t.csv") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_columns_become_inputs_and_classes(tmp_path: Path) -> None:
    file = write(tmp_path)
    table = Table(file=file, test_file=file, target="label", ignore=["city"], clients=1, normalise=False)
    clients = table.build(seed=1)
    assert (clients.shape, clients.num_outputs, clients.task) == ((2,), 3, "classes")
    assert clients.train(0, 1).x.tolist() == [[20, 1.5], [30, 2.5], [40, 3.5], [50, 4.5]]
    assert clients.train(0, 1).y.tolist() == [2, 1, 2, 0]  # maybe, no, yes


def test_a_number_can_be_predicted(tmp_path: Path) -> None:
    table = Table(file=write(tmp_path), target="income", task="values", ignore=["city", "label"], clients=1)
    clients = table.build(seed=1)
    assert clients.task == "values"
    # A fifth of four rows is less than one.
    assert clients.train(0, 1).y.tolist() == [[1.5], [2.5], [3.5], [4.5]]


def test_natural_clients_by_a_column(tmp_path: Path) -> None:
    table = Table(
        file=write(tmp_path),
        target="age",
        task="values",
        ignore=["label"],
        partition=Natural(column="city"),
        test_fraction=0.5,
    )
    clients = table.build(seed=1)
    assert clients.shape == (1,)  # the city is not an input
    assert [clients.train(client, 1).y.tolist() for client in range(2)] == [[[30]], [[20]]]
    assert [clients.test(client, 1).y.tolist() for client in range(2)] == [[[50]], [[40]]]


def test_parquet_gives_the_same_data(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"age": [20, 30], "income": [1.5, 2.5], "city": ["rome", "oslo"]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    found = read_table(tmp_path / "t.parquet")
    assert {name: column.tolist() for name, column in found.columns.items()} == columns
    clients = Table(
        file=str(tmp_path / "t.parquet"),
        target="city",
        test_file=str(tmp_path / "t.parquet"),
        clients=1,
        normalise=False,
    ).build(seed=1)
    assert torch.equal(clients.train(0, 1).x, torch.tensor([[20, 1.5], [30, 2.5]]))
    assert clients.train(0, 1).y.tolist() == [1, 0]
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"t\.parquet cannot be read as Parquet"):
        read_table(tmp_path / "t.parquet")


def test_error_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(FedgeError, match=r"pip install 'fedge\[table\]'"):
        read_table(tmp_path / "t.parquet")


def test_numbers_and_words_are_distinguished(tmp_path: Path) -> None:
    found = read_table(Path(write(tmp_path, 'a,b,c\n1,1.5,"x, y"\n2,-3e2,z\n')))
    assert [column.dtype.kind for column in found.columns.values()] == ["i", "f", "U"]
    assert found.columns["c"].tolist() == ["x, y", "z"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (ROWS, {"target": "lable"}, r"has no column 'lable', did you mean 'label'\?; it has age, income, city, label"),
        (
            ROWS,
            {"target": "label"},
            r"t\.csv, column 'city': expected numbers, got text \('rome' in row 2\); encode it as numbers, or list",
        ),
        (ROWS, {"target": "label", "ignore": ["age", "income", "city"]}, "no column is left as an input"),
        ("a,b\n1,2\n3\n", {"target": "b"}, r"row 3: expected 2 fields as in the header, got 1"),
        (
            "a,b\n1,2\nnan,1\n",
            {"target": "b"},
            r"t\.csv, row 3, column 'a': the value is missing; fill it in, or remove the row$",
        ),
        (
            "a,b\n1,2\n\n2,3\n,1\n,1\n",
            {"target": "b"},
            r"row 5, column 'a': the value is missing; .* \(2 of 4 rows have such a value\)",
        ),
        ("a,b\n1,2\n2,3\nNA,1\n", {"target": "b"}, r"row 4, column 'a': expected a number, got 'NA'; correct it"),
        ("a,b\n1,2\n1e39,1\n", {"target": "b"}, r"row 3, column 'a': 1e\+39 is infinite or beyond float32"),
        ("a,b\n1,x\n2,\n", {"target": "b"}, r"row 3, column 'b': the value is missing"),
        ('a,b,c\n1,"x\ny",1\n2,z,\n', {"target": "b"}, r"row 4, column 'c': the value is missing"),
        ("a,b\n1,2\n2,x\n3,4\n", {"target": "b", "task": "values"}, r"row 3, column 'b': expected a number, got 'x'"),
        ("a,b\n1,x\n", {"target": "b", "task": "values"}, r"column 'b': .* text .*; name another data\.target, or set"),
        (
            "a,b,a\n1,2,3\n",
            {"target": "b"},
            r"t\.csv: two columns have the name 'a' \(columns 1, 3\); rename or remove one",
        ),
        ("g,a,b\nx,1,2\n ,2,3\n", {"target": "b", "partition": NATURAL}, r"row 3, column 'g': the value is missing"),
        ("a,b\n", {"target": "b"}, "expected a header and at least one row"),
        ("", {"target": "b"}, "expected a header and at least one row"),
    ],
)
def test_errors_name_the_problem(tmp_path: Path, text: str, options: dict[str, object], message: str) -> None:
    table = read({"file": write(tmp_path, text), "clients": 1, **options}, Table, "data")
    with pytest.raises(DataError, match=message):
        table.build(seed=1)


def test_test_class_without_training_samples(tmp_path: Path) -> None:
    file, test_file = write(tmp_path, "a,b\n1,x\n"), write(tmp_path, "a,b\n1,y\n", "test.csv")
    with pytest.raises(DataError, match=r"data\.target: the test set has classes .* such as y"):
        Table(file=file, test_file=test_file, target="b", clients=1).build(seed=1)
    with pytest.raises(DataError, match=r"expected a name that ends in \.csv, \.csv\.gz or \.parquet, got"):
        Table(file="t.xls", target="b").build(seed=1)
    with pytest.raises(DataError, match=r"none\.csv cannot be read"):
        Table(file=str(tmp_path / "none.csv"), target="b").build(seed=1)


def test_the_last_rows_are_for_the_test(tmp_path: Path) -> None:
    rows = "a,b\n" + "".join(f"{i},{i % 2}\n" for i in range(10))
    table = Table(file=write(tmp_path, rows), target="b", clients=1, test_fraction=0.3, normalise=False)
    clients = table.build(seed=1)
    assert clients.pooled_test().x.flatten().tolist() == [7, 8, 9]
    assert np.array_equal(clients.train(0, 1).x.flatten(), np.arange(7))


def test_inputs_are_normalised_by_the_training_rows(tmp_path: Path) -> None:
    rows = "a,b,y\n1,1000,0\n3,3000,1\n100,9000,1\n"
    clients = Table(file=write(tmp_path, rows), target="y", clients=1, test_fraction=0.34).build(seed=1)
    # 1 and 3 have mean 2 and standard deviation 1; the other column has a thousand times that.
    assert clients.train(0, 1).x.tolist() == [[-1, -1], [1, 1]]
    assert clients.pooled_test().x.tolist() == [[98, 7]]


def test_an_object_column_with_none_names_the_row() -> None:
    columns = {"a": np.array([1, None, 3], object), "b": np.array([0, 1, 0])}
    table = TableColumns(columns, "the frame", np.array([10, 11, 12]))
    with pytest.raises(DataError, match=r"the frame, row 11, column 'a': the value is missing"):
        whole_of_tables(table, table, target="b")
    columns["a"] = np.array(["2020-01-01"] * 3, "datetime64[D]")
    with pytest.raises(DataError, match=r"the frame, column 'a': expected numbers, got dates or times; encode it"):
        whole_of_tables(table, table, target="b")


def test_numbers_and_text_of_one_class_are_the_same(tmp_path: Path) -> None:
    """The column of the training file is all numbers, that of the test file is not."""
    file, test_file = write(tmp_path, "a,b\n1,1\n2,x\n"), write(tmp_path, "a,b\n3,1\n", "test.csv")
    table = Table(file=file, test_file=test_file, target="b", clients=1, normalise=False)
    assert table.whole().classes == ("1", "x")
    assert table.whole().test.y.tolist() == [0]
