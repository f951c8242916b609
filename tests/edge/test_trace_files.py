"""Reading traces: accepted files, and errors for invalid ones."""

from pathlib import Path

import numpy as np
import pytest

from fedge.core.errors import DataError
from fedge.edge.trace_files import TraceColumns, read_columns


def write(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_bytes(text.encode())
    return path


def read(folder: Path, text: str) -> TraceColumns:
    return read_columns(write(folder, text), ("client", "start"))


def test_columns_by_name_in_any_order(tmp_path: Path) -> None:
    table = read(tmp_path, "start, note ,client\n0.5,a,3\n1e2,b,0\n")
    assert table.values["client"].tolist() == [3, 0]
    assert table.values["start"].tolist() == [0.5, 100]
    assert list(table.values) == ["client", "start"]


def test_line_numbers_are_those_of_the_file(tmp_path: Path) -> None:
    table = read(tmp_path, 'client,start,note\n1,2,\n\n3,4,"two\nlines"\n5,6,\n')
    assert table.lines.tolist() == [2, 5, 6]


def test_files_of_other_systems(tmp_path: Path) -> None:
    assert read(tmp_path, "\ufeffclient,start\r\n1,2\r\n").values["client"].tolist() == [1]


def test_whole_numbers(tmp_path: Path) -> None:
    clients = read(tmp_path, "client,start\n3,0\n0,0.5\n").whole("client", 4)
    assert clients.dtype == np.int64
    assert clients.tolist() == [3, 0]


@pytest.mark.parametrize("client", ["4", "-1", "1.5"])
def test_an_impossible_client(tmp_path: Path, client: str) -> None:
    table = read(tmp_path, f"client,start\n3,0\n{client},0\n")
    expected = rf"trace\.csv, line 3: expected client to be a whole number from 0 to 3, got {client}$"
    with pytest.raises(DataError, match=expected):
        table.whole("client", 4)


def test_the_first_wrong_row_is_named(tmp_path: Path) -> None:
    table = read(tmp_path, "client,start\n0,1\n\n0,7\n0,8\n")
    with pytest.raises(DataError, match=r"line 4: expected start to be small, got 7$"):
        table.refuse(table.values["start"] > 5, "start", "small")
    table.refuse(table.values["start"] > 8, "start", "small")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,stop\n1,2\n", r"line 1: expected a header with client, start; there is no 'start'.* in client, stop$"),
        ("", r"line 1: .* no 'client' in an empty file$"),
        ("client,start\n", r"expected at least one row below the header, got none$"),
        ("client,start\n1,2\n1\n", r"line 3: expected 2 fields as in the header, got 1$"),
        ("client,start\n1,2\n1,soon\n", r"line 3: expected start to be a finite number, got 'soon'$"),
        ("client,start\n1,inf\n", r"line 2: expected start to be a finite number, got 'inf'$"),
        ("client,start\n,1\n", r"line 2: expected client to be a finite number, got ''$"),
    ],
)
def test_errors_of_a_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as raised:
        read(tmp_path, text)
    assert str(tmp_path / "trace.csv") in str(raised.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.csv cannot be read: No such file"):
        read_columns(tmp_path / "none.csv", ("client",))
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_columns(tmp_path, ("client",))


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_bytes(b"client,start\n\xff\xfe,1\n")
    with pytest.raises(DataError, match="not CSV text in UTF-8"):
        read_columns(tmp_path / "trace.csv", ("client", "start"))
