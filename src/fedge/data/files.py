"""Data files: search paths, checksums, and how to get missing files."""

from __future__ import annotations

import gzip
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import md5, sha256
from itertools import product
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from msgspec import Meta

from fedge.core.effect import NO_EFFECT
from fedge.core.errors import DataError, StorageError
from fedge.core.storage import user_cache
from fedge.data.download import Download

Dir = Annotated[
    str | None,
    Meta(
        description="Directory of data files, or of folders of them (default: FEDGE_DATA, or the user's cache).",
        extra=NO_EFFECT,
    ),
]

_BAD_ZIP = (OSError, EOFError, zlib.error)


class AnyOrder(NamedTuple):
    """Content whose records may be in any order, identified by a digest of the multiset of records."""

    sha256: str  # of the sorted SHA-256 digests of all records
    records: Callable[[bytes], np.ndarray]  # returns [n, bytes of a record]; raises a DataError if it finds none

    def matches(self, content: bytes) -> bool:
        """Return whether the content has these records, in any order."""
        return sha256(b"".join(sorted(record_digests(self.records(content))))).hexdigest() == self.sha256


class Source(NamedTuple):
    """One file of a data set, or one folder of files (`train/*.json`), in one of several forms."""

    forms: Mapping[str, str | None]  # name -> published MD5, if there is one; the first is the preferred form
    how: str  # how to get it; {path} stands for its path, {folder} for the folder of all files
    any_order: AnyOrder | None = None  # content that is accepted with any MD5
    download: Download | None = None  # for `fedge data get`, which otherwise prints `how`

    @property
    def name(self) -> str:
        return next(iter(self.forms))


class Finding(NamedTuple):
    """The state of a source in a data directory."""

    source: Source
    status: Literal["ok", "missing", "wrong"]
    path: Path  # where it is, or should be
    problem: str = ""


class Collection(NamedTuple):
    """Files that a data set is read from."""

    folders: tuple[str, ...]  # searched below the data directory; new files go into the first
    files: tuple[Source, ...]
    purpose: str = ""  # use of the files, if they are optional

    def find(self, root: Path, name: str) -> list[list[Path]]:
        """Return the paths of each file; a DataError that lists missing files, their folder and how to get them."""
        found = [self.matches(source, root) for source in self.files]
        missing = [source for source, paths in zip(self.files, found, strict=True) if not paths]
        if missing:
            names = ", ".join(dict.fromkeys(source.name for source in missing))
            command = ""
            if all(source.download for source in missing):
                where = "" if root == data_dir(None) else f" --dir {root}"
                command = f"run `fedge data get {name.split()[0]}{where}`, or "
            looked = " and ".join(str(place) for place in self.places(root))
            ways = "\n".join(dict.fromkeys(f"  {self.how(source, root)}" for source in missing))
            raise DataError(
                f"data.name: {name} needs {names}, looked for in {looked}; {command}put them into "
                f"{self.places(root)[0]}:\n{ways}\n"
                "or set data.dir or the environment variable FEDGE_DATA to the directory that has them"
            )
        return found

    def places(self, root: Path) -> list[Path]:
        return [root / folder for folder in self.folders]

    def matches(self, source: Source, root: Path) -> list[Path]:
        """Return the files of a source in its first form that exists, searching folders in order."""
        for place, form in product(self.places(root), source.forms):
            if found := sorted(path for path in place.glob(form) if path.is_file()):
                return found
        return []

    def how(self, source: Source, root: Path) -> str:
        """Return instructions to get a file."""
        folder = self.places(root)[0]
        return source.how.format(path=folder / source.name, folder=folder)

    def check(self, root: Path) -> Iterator[Finding]:
        """Yield the state of each file: missing, ok, or different from the published one where a checksum is known."""
        found: dict[Path, Source] = {}  # several sources may share a file
        for source in self.files:
            paths = self.matches(source, root)
            found |= dict.fromkeys(paths or [self.places(root)[0] / source.name], source)
        for path, source in found.items():
            if not path.is_file():
                yield Finding(source, "missing", path, self.how(source, root))
                continue
            try:
                read_source(source, path)
                yield Finding(source, "ok", path)
            except DataError as error:
                yield Finding(source, "wrong", path, str(error))

    def downloads(self, root: Path) -> Iterator[tuple[Download, Path]]:
        """Yield missing files that can be downloaded, each with its path."""
        for source in self.files:
            if source.download and not self.matches(source, root):
                yield source.download, self.places(root)[0] / source.name

    def copy(self, origin: Path, root: Path) -> Iterator[Path]:
        """Copy missing files from another directory; each is checked before it is put in place."""
        elsewhere = self._replace(folders=(*self.folders, "."))
        for source in self.files:
            if self.matches(source, root):
                continue
            for path in elsewhere.matches(source, origin):
                read_source(source, path)
                form = next(form for form in source.forms if path.match(form))
                yield _place(path, self.places(root)[0] / Path(form).parent / path.name)


def data_dir(option: str | None) -> Path:
    """Return the option, else the environment variable FEDGE_DATA, else the user's cache directory."""
    chosen = option or os.environ.get("FEDGE_DATA")
    if chosen:
        return Path(chosen).expanduser()
    return user_cache()


def curl(url: str) -> str:
    """Return the command that downloads a file."""
    return f"curl -L --create-dirs -o {{path}} {url}"


def checksums(source: Source, path: Path) -> list[str]:
    """Return the accepted MD5s of a file: of the file itself, or of its unzipped content (zip programs differ)."""
    published = (source.forms.get(path.name), source.forms.get(path.stem))
    return [each for each in published if each is not None]


def read_source(source: Source, path: Path) -> bytes:
    """Return the bytes of a file; a DataError if they differ from the published ones (in any order, if allowed)."""
    if source.any_order is None:
        return read_checked(path, checksums(source, path))
    content = read_checked(path)
    try:
        if is_published(source, path, content) or source.any_order.matches(content):
            return content
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    raise DataError(
        f"{path} is truncated or corrupt: expected the published file, or its {source.name!r} samples in another order "
        f"(digest {source.any_order.sha256}), got {len(content)} other bytes; delete it and get it again"
    )


def is_published(source: Source, path: Path, content: bytes) -> bool:
    """Return whether a file is the published one, byte for byte."""
    return _md5(content) in checksums(source, path)


def record_digests(records: np.ndarray) -> list[bytes]:
    """Return the SHA-256 of each row of bytes."""
    return [sha256(record.tobytes()).digest() for record in records]


def read_files(collection: Collection, root: Path, name: str) -> list[bytes]:
    """Return the contents of the files of a data set, checked and unzipped."""
    found = collection.find(root, name)
    pairs = zip(collection.files, found, strict=True)
    return [read_unzipped(paths[0], checksums(source, paths[0])) for source, paths in pairs]


def read_unzipped(path: Path, expected: Sequence[str] = ()) -> bytes:
    """Return the bytes of a file, checked, and unzipped if its name ends in .gz."""
    content = read_checked(path, expected)
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except _BAD_ZIP as error:
        raise DataError(f"{path} is truncated or corrupt: {error}; delete it and get it again") from error


def read_checked(path: Path, expected: Sequence[str] = ()) -> bytes:
    """Return the bytes of a file; a DataError if neither they nor the unzipped content has an expected MD5."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check its name and permissions") from error
    if not expected or (found := _md5(content)) in expected:
        return content
    with suppress(*_BAD_ZIP):
        if path.suffix == ".gz" and _md5(gzip.decompress(content)) in expected:
            return content
    raise DataError(
        f"{path} is truncated or corrupt: expected MD5 {expected[0]}, got {found} ({len(content)} bytes); "
        "delete it and get it again"
    )


def _md5(content: bytes) -> str:
    return md5(content, usedforsecurity=False).hexdigest()


def read_rows(path: Path, form: Sequence[str], expected: Sequence[str] = ()) -> Iterator[list[str]]:
    """Yield the tab-separated fields of each line; a DataError if a line does not have the columns in `form`."""
    try:
        text = read_unzipped(path, expected).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8: {error}; convert it") from error
    for number, line in enumerate(text.split("\n"), 1):
        fields = line.rstrip("\r").split("\t")
        if len(fields) == len(form):
            yield fields
        elif line.strip():
            raise DataError(f"{path}, line {number}: expected {'<TAB>'.join(form)}, got {len(fields)} columns")


def _place(path: Path, target: Path) -> Path:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{target.name}.part")  # an interrupted copy must not look complete
        shutil.copyfile(path, partial)
        partial.replace(target)
    except OSError as error:
        raise StorageError(f"{target} cannot be written: {error.strerror}; choose another --dir") from error
    return target
