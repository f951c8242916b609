"""Tags and notes of runs, keyed by the run's id, in one file beside the runs: run directories stay unchanged."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Annotated

import msgspec

from fedge.core.errors import ConfigError, StorageError
from fedge.core.printable import printable
from fedge.core.storage import user_cache, write_atomic, writing
from fedge.runs.files import encode_pretty

NOTES = "fedge-notes.json"
MOST_TAGS = 20

_MOST_BYTES = 64 << 20

Tag = Annotated[str, msgspec.Meta(min_length=1, max_length=40)]


class RunNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tags and the note that users wrote about a run."""

    tags: Annotated[tuple[Tag, ...], msgspec.Meta(max_length=MOST_TAGS)] = ()
    note: Annotated[str, msgspec.Meta(max_length=4_000)] = ""


class Notes:
    """The notes of a folder: in the folder itself, or in the user's cache if the folder is read-only."""

    def __init__(self, root: Path) -> None:
        name = sha256(os.fsencode(root)).hexdigest()[:16]
        self._files = (root / NOTES, user_cache() / "view" / f"notes-{name}.json")
        self._lock = Lock()
        self._read: tuple[object, Mapping[str, RunNote]] = (None, {})

    def read(self) -> Mapping[str, RunNote]:
        """Return the notes by run id; if both files have one, that in the cache is used."""
        stamps = [_stamp(file) for file in self._files]
        with self._lock:
            if self._read[0] != stamps:
                self._read = stamps, {key: note for file in self._files for key, note in _load(file).items()}
            return self._read[1]

    def write(self, key: str, note: RunNote) -> None:
        """Store the note of a run; an empty note is deleted. Raises StorageError if neither file can be written."""
        beside, cached = self._files
        try:
            self._write(beside, key, note)
        except StorageError:
            self._write(cached, key, note)
            return
        if key in _load(cached):  # an older note, from when the folder was read-only, would be used
            self._write(cached, key, RunNote())

    def _write(self, file: Path, key: str, note: RunNote) -> None:
        with self._lock, writing(file, "try again"):
            found = _load(file, strict=True) | {key: note}
            kept = {each: one for each, one in found.items() if one != RunNote()}
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(file, encode_pretty(kept))


def read_note(data: bytes) -> RunNote:
    """Return the note in the body of a request. Raises ConfigError."""
    try:
        found = msgspec.json.decode(data, type=RunNote)
        tags = dict.fromkeys(printable(tag.strip()) for tag in found.tags if tag.strip())
        # escapes make texts longer, and a file with one that is too long could not be read again
        return msgspec.convert({"tags": tuple(tags), "note": printable(found.note.strip(), "\n")}, RunNote)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f'expected {{"tags": ["..."], "note": "..."}}, got another body: {error}') from None


def _load(file: Path, strict: bool = False) -> dict[str, RunNote]:
    """Return the notes in a file; a damaged file counts as empty, or raises StorageError if `strict`."""
    try:
        status = file.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:  # a pipe may never end
            raise ValueError(f"expected a regular file of at most {_MOST_BYTES:,} bytes")
        return msgspec.json.decode(file.read_bytes(), type=dict[str, RunNote])
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as error:  # msgspec's errors and UnicodeDecodeError too
        if strict:
            raise StorageError(f"{file.name} is damaged: {error}; repair it or move it away") from None
        return {}


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
