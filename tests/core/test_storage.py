"""Files that are whole or absent."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedge.core.storage import write_atomic


def test_a_file_may_come_in_pieces(tmp_path: Path) -> None:
    write_atomic(tmp_path / "file", iter([b"one", memoryview(b" two "), b"", b"three"]))
    assert (tmp_path / "file").read_bytes() == b"one two three"
    write_atomic(tmp_path / "file", b"whole")
    assert (tmp_path / "file").read_bytes() == b"whole"


@pytest.mark.parametrize("error", [TypeError, KeyboardInterrupt])
def test_pieces_that_fail_leave_the_file_as_it_was(tmp_path: Path, error: type[BaseException]) -> None:
    def fail() -> Iterator[bytes]:
        yield b"half"
        raise error

    write_atomic(tmp_path / "file", b"before")
    with pytest.raises(error):
        write_atomic(tmp_path / "file", fail())
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"before")]
