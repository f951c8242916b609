import gzip
from hashlib import md5
from pathlib import Path

import numpy as np
import pytest

from fedge.core.errors import DataError
from fedge.data.files import Collection, Source, read_rows, read_unzipped
from fedge.data.idx import read_idx

RIGHT = b"content"
FILES = Collection(
    ("set", "."),
    (
        Source({"a.bin": md5(RIGHT).hexdigest()}, "fetch {path}"),
        Source({"train/*.json": None, "all/*.json": None}, "make {folder}"),
    ),
)


def statuses(root: Path) -> list[tuple[str, str]]:
    return [(finding.status, str(finding.path.relative_to(root))) for finding in FILES.check(root)]


def put(path: Path, content: bytes = RIGHT) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_error_about_missing_files_has_instructions(tmp_path: Path) -> None:
    assert statuses(tmp_path) == [("missing", "set/a.bin"), ("missing", "set/train/*.json")]
    with pytest.raises(DataError) as caught:
        FILES.find(tmp_path, "mine")
    assert str(caught.value).splitlines()[:3] == [
        f"data.name: mine needs a.bin, train/*.json, looked for in {tmp_path}/set and {tmp_path}; "
        f"put them into {tmp_path}/set:",
        f"  fetch {tmp_path}/set/a.bin",
        f"  make {tmp_path}/set",
    ]


def test_files_are_found_in_any_folder_and_form(tmp_path: Path) -> None:
    put(tmp_path / "a.bin")
    put(tmp_path / "set/all/2.json")
    put(tmp_path / "set/all/1.json")
    assert FILES.find(tmp_path, "mine") == [
        [tmp_path / "a.bin"],
        [tmp_path / "set/all/1.json", tmp_path / "set/all/2.json"],
    ]
    assert statuses(tmp_path) == [("ok", "a.bin"), ("ok", "set/all/1.json"), ("ok", "set/all/2.json")]
    put(tmp_path / "set/train/1.json")  # the first form
    assert FILES.find(tmp_path, "mine")[1] == [tmp_path / "set/train/1.json"]


def test_wrong_and_missing_files_are_distinguished(tmp_path: Path) -> None:
    put(tmp_path / "set/a.bin", RIGHT[:-1])
    finding = next(FILES.check(tmp_path))
    assert finding.status == "wrong"
    assert "truncated or corrupt" in finding.problem


def test_copies_are_checked_and_keep_their_folder(tmp_path: Path) -> None:
    origin, root = tmp_path / "from", tmp_path / "to"
    put(origin / "a.bin")
    put(origin / "train/1.json", b"{}")
    assert list(FILES.copy(origin, root)) == [root / "set/a.bin", root / "set/train/1.json"]
    assert (root / "set/train/1.json").read_bytes() == b"{}"
    assert list(FILES.copy(origin, root)) == []  # already there
    put(origin / "a.bin", b"wrong")
    with pytest.raises(DataError, match="truncated or corrupt"):
        list(FILES.copy(origin, tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def test_truncated_gzip_file(tmp_path: Path) -> None:
    put(tmp_path / "a.gz", gzip.compress(RIGHT)[:-9])
    with pytest.raises(DataError, match=r"a\.gz is truncated or corrupt: .* get it again"):
        read_unzipped(tmp_path / "a.gz")
    with pytest.raises(DataError, match=r"b\.gz cannot be read: No such file"):
        read_unzipped(tmp_path / "b.gz")


def test_rows_of_text(tmp_path: Path) -> None:
    put(tmp_path / "a.tsv", "x\té\u2028\r\n\ny\tz".encode())
    assert list(read_rows(tmp_path / "a.tsv", ("one", "two"))) == [["x", "é\u2028"], ["y", "z"]]
    with pytest.raises(DataError, match=r"a\.tsv, line 1: expected one<TAB>two<TAB>three, got 2 columns"):
        list(read_rows(tmp_path / "a.tsv", ("one", "two", "three")))
    put(tmp_path / "b.tsv", b"\xff")
    with pytest.raises(DataError, match=r"b\.tsv is not text in UTF-8"):
        list(read_rows(tmp_path / "b.tsv", ("one",)))


def test_idx_of_integers() -> None:
    # Type 12 is int32 in big-endian order; two dimensions, 2x3.
    content = bytes([0, 0, 12, 2, 0, 0, 0, 2, 0, 0, 0, 3]) + np.array([1, 2, 3, -4, 5, 6], ">i4").tobytes()
    assert read_idx(content, "file").tolist() == [[1, 2, 3], [-4, 5, 6]]
    with pytest.raises(DataError, match="file: expected 36 bytes for 2x3 values, got 35"):
        read_idx(content[:-1], "file")


@pytest.mark.parametrize("content", [b"", b"\0\0\x08", b"PK\x03\x04", b"\0\0\x07\x01\0\0\0\0", b"\0\0\x08\x01\0"])
def test_invalid_idx_files(content: bytes) -> None:
    with pytest.raises(DataError, match="file: expected an IDX file"):
        read_idx(content, "file")
