"""Download of one file over HTTP: resumable, limited in size, and put in place after its SHA-256 was checked."""

from __future__ import annotations

import fcntl
import http.client
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from fedge.core.errors import DataError, NetworkError, StorageError

TIMEOUT_S = 30.0
"""Longest time without a byte from the server."""
_PATIENCE = 3  # consecutive attempts without a new byte
_CHUNK = 1 << 16
_ZIP_OR_GZIP = 32 + zlib.MAX_WBITS  # zlib detects which

Progress = Callable[[int, int | None], None]
"""Called with the number of bytes downloaded, and the total if it is known."""


class Download(NamedTuple):
    """A file that can be downloaded directly."""

    url: str
    sha256: str  # of the content, unzipped if the name ends in .gz, because zip programs differ
    max_bytes: int  # a larger file is not the published one


class _Restart(Exception):  # noqa: N818 - not an error: the partial file does not belong to the server's file
    """The partial download must be discarded."""


def fetch(download: Download, target: Path, progress: Progress = lambda done, total: None) -> Path:
    """Download a file to `target` and return it; an interrupted download is resumed from its `.part` file.

    Raises a NetworkError if the server cannot be reached or the connection breaks, and a DataError if it has another
    file.
    """
    opener = build_opener(_SameScheme)
    with _open_part(target) as part:
        resumed = part.seek(0, 2) > 0
        _complete(opener, download, part, progress)
        problem = check_content(part, target.name, download.sha256)
        if problem and resumed:  # the first part may be from another version of the file
            _truncate(part)
            _complete(opener, download, part, progress)
            problem = check_content(part, target.name, download.sha256)
        if problem:
            _truncate(part)
            raise DataError(f"{download.url}: {problem}; it was not kept. Get the file elsewhere and use --from")
        try:
            Path(part.name).replace(target)
        except OSError as error:
            raise _unwritable(target, error) from error
    return target


def check_content(file: IO[bytes], name: str, expected: str) -> str | None:
    """Return the problem with a file's content, unzipped if its name ends in .gz; None if it is correct."""
    file.seek(0)
    found, unzip = sha256(), zlib.decompressobj(_ZIP_OR_GZIP) if name.endswith(".gz") else None
    try:
        while chunk := file.read(_CHUNK):
            found.update(unzip.decompress(chunk) if unzip else chunk)
    except zlib.error as error:
        return f"expected a gzip file: {error}"
    if unzip and not unzip.eof:
        return "the gzip file is truncated"
    return None if found.hexdigest() == expected else f"expected SHA-256 {expected}, got {found.hexdigest()}"


def _complete(opener: OpenerDirector, download: Download, part: IO[bytes], progress: Progress) -> None:
    """Append to the partial file until it is complete."""
    failed = most = 0
    while True:
        most = max(most, part.seek(0, 2))
        try:
            if _continue(opener, download, part, progress):
                return
            problem = "the connection ended early"
        except _Restart:
            _truncate(part)
            problem = "the file on the server changed during the download"
        except HTTPError as error:
            error.close()
            problem = f"the server answered {error.code} {error.reason}"
            if error.code < http.HTTPStatus.INTERNAL_SERVER_ERROR:  # the client's fault: retrying will not help
                raise NetworkError(f"{download.url}: {problem}; get the file elsewhere and use --from") from None
        except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
            problem = f"{getattr(error, 'reason', None) or error or type(error).__name__}"
        failed = 0 if part.seek(0, 2) > most else failed + 1
        if failed == _PATIENCE:
            raise NetworkError(
                f"{download.url}: {problem}; got {part.tell():,} bytes so far, run the command again to continue"
            )


def _continue(opener: OpenerDirector, download: Download, part: IO[bytes], progress: Progress) -> bool:
    """Request the missing bytes once, and return whether the file is complete."""
    done = part.tell()
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    try:
        response = opener.open(Request(download.url, headers=headers), timeout=TIMEOUT_S)
    except HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            error.close()
            if error.headers.get("Content-Range") == f"bytes */{done}":
                return True  # the last attempt had received everything
            raise _Restart from None
        raise
    with response:
        if done and response.status != http.HTTPStatus.PARTIAL_CONTENT:  # the server does not support ranges
            _truncate(part)
            done = 0
        total = _total(response, done)
        if total is not None and total > download.max_bytes:
            raise _too_large(download, f"{total:,}")
        while chunk := response.read(_CHUNK):
            done += len(chunk)
            if done > download.max_bytes:
                _truncate(part)
                raise _too_large(download, "more")
            _write(part, chunk)
            progress(done, total)
    return total is None or done == total


def _total(response: Any, done: int) -> int | None:
    """Return the size of the whole file, of which `done` bytes are there, as the server reports; None if unknown."""
    if not done:
        length = response.headers.get("Content-Length", "")
        return int(length) if re.fullmatch(r"\d{1,15}", length) else None
    found = re.fullmatch(r"bytes (\d{1,15})-\d{1,15}/(\d{1,15})", response.headers.get("Content-Range", ""))
    if not found or int(found[1]) != done or int(found[2]) < done:
        raise _Restart
    return int(found[2])


class _SameScheme(HTTPRedirectHandler):
    """Follows redirects to the same scheme or to https only."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        scheme = urlsplit(newurl).scheme
        if scheme not in (req.type, "https"):
            raise NetworkError(f"{req.full_url}: refused to follow a redirect from {req.type} to {scheme}: {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def _open_part(target: Path) -> Iterator[IO[bytes]]:
    """Open and lock the partial file."""
    path = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = path.open("a+b")
    except OSError as error:
        raise _unwritable(path, error) from error
    with part:
        try:
            fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(f"{path}: another process is downloading it; wait until it has finished") from None
        yield part


def _write(part: IO[bytes], chunk: bytes) -> None:
    try:
        part.write(chunk)
        part.flush()  # keeps received bytes, however the process ends
    except OSError as error:
        raise _unwritable(Path(part.name), error) from error


def _truncate(part: IO[bytes]) -> None:
    part.truncate(0)
    part.seek(0)


def _too_large(download: Download, size: str) -> DataError:
    return DataError(
        f"{download.url}: expected at most {download.max_bytes:,} bytes, got {size}; it is a different file"
    )


def _unwritable(path: Path, error: OSError) -> StorageError:
    return StorageError(f"{path} cannot be written: {error.strerror}; choose another --dir")
