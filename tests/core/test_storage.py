"""Atomic files: complete or absent."""

import stat
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
def test_a_failed_write_leaves_the_file_unchanged(tmp_path: Path, error: type[BaseException]) -> None:
    def fail() -> Iterator[bytes]:
        yield b"half"
        raise error

    write_atomic(tmp_path / "file", b"before")
    with pytest.raises(error):
        write_atomic(tmp_path / "file", fail())
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"before")]


def test_a_secret_file_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    (tmp_path / "file.part").touch(0o644)  # left by a crash
    write_atomic(tmp_path / "file", b"secret", secret=True)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_a_link_in_place_of_the_partial_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "file.part").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic link"):
        write_atomic(tmp_path / "file", b"new")
    assert (tmp_path / "other").read_bytes() == b"other"
