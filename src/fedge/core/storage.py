"""Files: atomic writing, errors with a remedy, digests. A crash or a full disk never damages what was saved before."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest
from pathlib import Path

from fedge.core.errors import StorageError

_REMEDIES = {
    errno.ENOSPC: "free space on that disk",
    errno.EDQUOT: "free space within your quota",
    errno.EFBIG: "raise the limit on file sizes (`ulimit -f`)",
    errno.EROFS: "make that disk writable",
    errno.EACCES: "grant yourself write permission",
    errno.EPERM: "grant yourself write permission",
    errno.ENOTDIR: "move the file that is in place of a folder",
    errno.EEXIST: "move the file that is in place of a folder",
}


def user_cache() -> Path:
    """Return this user's folder for files that can be downloaded or built again: data sets, indexes."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fedge"


@contextmanager
def writing(path: Path, then: str) -> Iterator[None]:
    """Turn an OSError into a StorageError with a remedy for `path` and, in `then`, the next step."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "fix this")
        raise StorageError(f"cannot write {path}: {_reason(error)}; {remedy}, then {then}") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an OSError into a StorageError about `path`."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot read {path}: {_reason(error)}; grant yourself read permission and retry") from error


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's content in hex; raise an OSError if it cannot be read."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def stamp_of(path: Path) -> tuple[int, ...]:
    """Return numbers that change whenever a file is replaced or written; empty if it cannot be found."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def write_all(file: int, data: bytes | memoryview) -> None:
    """Write all data to a file descriptor, in one call unless the system accepts only a part."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def write_atomic(
    path: Path,
    data: bytes | Iterable[bytes | memoryview],
    then: str | None = None,
    secret: bool = False,
    durable: bool = True,
) -> None:
    """Write a file atomically, given whole or in pieces: after a crash it has either the old or the new content.

    With `then`, an OSError becomes a StorageError, as by `writing`. A `secret` file is readable only by its owner (mode
    0600), regardless of the umask. Unless `durable`, the guarantee covers only a crash of the process, and the call
    does not wait for the disk.
    """
    if then is not None:
        with writing(path, then):
            write_atomic(path, data, secret=secret, durable=durable)
        return
    part = path.with_name(f"{path.name}.part")
    try:
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600 if secret else 0o666)
        try:
            if secret:  # a partial file left by a crash may have another mode
                os.fchmod(file, 0o600)
            for piece in (data,) if isinstance(data, bytes) else data:
                write_all(file, piece)
            if durable:
                os.fsync(file)
        finally:
            os.close(file)
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):  # report the first error; the partial file only takes space
            part.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable, which syncing a file does not."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
