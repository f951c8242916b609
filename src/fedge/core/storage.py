"""Writing so that a crash or a full disk costs nothing that was saved before."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedge.core.errors import StorageError

_REMEDIES = {
    errno.ENOSPC: "free space on that disk",
    errno.EDQUOT: "free space within your quota",
    errno.EFBIG: "raise the limit on file sizes (`ulimit -f`)",
    errno.EROFS: "make that disk writable",
    errno.EACCES: "make it writable for you",
    errno.EPERM: "make it writable for you",
    errno.ENOTDIR: "move away the file that stands in place of a folder",
    errno.EEXIST: "move away the file that stands in place of a folder",
}


def user_cache() -> Path:
    """Return the folder for files of this user that can be made again: data sets, indexes."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fedge"


@contextmanager
def writing(path: Path, then: str) -> Iterator[None]:
    """Turns an OSError into a StorageError that says what to do about `path`, and what to do then."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "put that right")
        raise StorageError(f"cannot write {path}: {_reason(error)}; {remedy}, then {then}") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns an OSError into a StorageError about `path`."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot read {path}: {_reason(error)}; make it readable for you and try again") from error


def write_all(file: int, data: bytes | memoryview) -> None:
    """Write to a file descriptor: in one call, unless the system takes only a part."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def write_atomic(
    path: Path, data: bytes | Iterable[bytes | memoryview], secret: bool = False, durable: bool = True
) -> None:
    """Put a file in place, given whole or in pieces: after a crash it is as it was before, or as it is now.

    A secret one can be read by its owner alone (mode 0600), whatever the umask is. Unless it is `durable`, the promise
    holds for a crash of the process only, and the call does not wait for the disk.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600 if secret else 0o666)
        try:
            if secret:  # a part that a crash has left may have another mode
                os.fchmod(file, 0o600)
            for piece in (data,) if isinstance(data, bytes) else data:
                write_all(file, piece)
            if durable:
                os.fsync(file)
        finally:
            os.close(file)
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):  # what was to be said is the first error; the part only takes space
            part.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable: syncing a file does not do that."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
