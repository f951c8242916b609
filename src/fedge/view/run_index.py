"""An index of all runs below a folder, stored in the user's cache, so that only changed runs are read again."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import msgspec

from fedge.core.storage import user_cache
from fedge.runs.files import CONFIG, ENVIRONMENT, ROUNDS
from fedge.view.run_entry import READ, STAMPED, RunEntry, Stamp, read_entry, stamp_of

_LAYOUT = 3
"""Layout number of the stored index; an index of another layout or version of fedge is rebuilt."""
TABLES = {"runs": "entry", "histories": "history", "curves": "curve"}
"""The tables of the stored index, keyed by the run's folder, each with its second column."""
NOT_STORED = Path(":memory:")
"""Used in place of the index file: nothing is stored, and all runs are read."""
_MARKS = {CONFIG, ENVIRONMENT, ROUNDS}
_SWEEP = "sweep.json"
_MOST_DEEP = 40  # depth of nested folders


Entries = Mapping[str, RunEntry]
"""Runs by their keys."""


class IndexChange(NamedTuple):
    """Keys of runs that were added, removed or changed between two states of an index."""

    added: list[str]
    removed: list[str]
    changed: list[str]

    @staticmethod
    def between(before: Entries, now: Entries) -> IndexChange:
        return IndexChange(
            [key for key in now if key not in before],
            [key for key in before if key not in now],
            [key for key, entry in now.items() if key in before and before[key] is not entry],
        )


class RunIndex:
    """The runs below a folder; `scan` updates it. Thread-safe."""

    def __init__(self, root: Path, file: Path | None = None, links: bool = False) -> None:
        """`file` is where the index is stored, by default in the user's cache; `links`: also read linked files."""
        self.root = root.resolve()
        name = sha256(os.fsencode(self.root)).hexdigest()[:16]
        self._file = file or user_cache() / "view" / f"index-{name}.sqlite"
        self._links = links
        self._known: dict[bytes, RunEntry] = {}
        self._by_key: dict[str, RunEntry] = {}
        self._lock = Lock()
        self._loaded = False

    @property
    def entries(self) -> Entries:
        """The runs of the last scan by key, in the order of their paths. It is never changed, only replaced."""
        return self._by_key

    def folder(self, entry: RunEntry) -> Path:
        """Return the path of a run's directory."""
        return self.root / os.fsdecode(entry.folder)

    def scan(self) -> Entries:
        """Find new, changed and removed runs; return all runs."""
        with self._lock:
            if not self._loaded:
                self._known, self._loaded = self._load(), True
            found = {entry.folder: entry for entry in self._walk()}
            fresh = [entry for folder, entry in found.items() if self._known.get(folder) is not entry]
            gone = [folder for folder in self._known if folder not in found]
            self._known = found
            if fresh or gone:
                self._store(fresh, gone)
            if fresh or gone or not self._by_key:
                self._by_key = self._order(found)
            return self._by_key

    def _walk(self) -> Iterator[RunEntry]:
        """Yield an entry for each run and each folder of repeats; unchanged ones are not read again."""
        waiting: list[tuple[bytes, bytes | None, int]] = [(b"", None, 0)]
        while waiting:
            relative, sweep, depth = waiting.pop()
            folder = self.root / os.fsdecode(relative)
            try:
                with os.scandir(folder) as listing:
                    items = list(listing)
            except OSError:  # removed meanwhile, or not permitted
                continue
            names = {item.name for item in items}
            if _SWEEP in names:
                sweep = relative
            if names & _MARKS:
                odd = frozenset(i.name for i in items if i.name in READ and not i.is_file(follow_symlinks=self._links))
                entry = self._entry(folder, relative, sweep, odd)
                yield entry
                if entry.problem is None and not entry.holds_runs:
                    continue
            if depth < _MOST_DEEP:
                below = (i.name for i in items if not i.name.startswith(".") and i.is_dir(follow_symlinks=False))
                waiting += [(os.path.join(relative, os.fsencode(name)), sweep, depth + 1) for name in below]

    def _entry(self, folder: Path, relative: bytes, sweep: bytes | None, odd: frozenset[str]) -> RunEntry:
        stamp: Stamp = stamp_of(str(folder))
        known = self._known.get(relative)
        if known is not None and (known.stamp, known.sweep, known.odd) == (stamp, sweep, tuple(sorted(odd))):
            return known
        return read_entry(folder, relative, stamp, sweep, odd)

    def _order(self, found: Mapping[bytes, RunEntry]) -> dict[str, RunEntry]:
        runs = [entry for entry in found.values() if not entry.holds_runs]
        return {entry.key: entry for entry in sorted(runs, key=lambda entry: entry.folder.split(b"/"))}

    def _load(self) -> dict[bytes, RunEntry]:
        """Return the stored entries; empty without a usable index."""
        try:
            with closing(self.connect()) as database:
                rows = database.execute("SELECT entry FROM runs").fetchall()
            return {entry.folder: entry for (data,) in rows if len((entry := _decode(data)).stamp) == 3 * len(STAMPED)}
        except (sqlite3.Error, OSError, ValueError, RecursionError):
            for file in (self._file, *(Path(f"{self._file}{end}") for end in ("-wal", "-shm", "-journal"))):
                with suppress(OSError):
                    file.unlink()
            return {}

    def _store(self, fresh: list[RunEntry], gone: list[bytes]) -> None:
        """Write changes. A full disk is ignored, because the page also works without a stored index."""
        with suppress(sqlite3.Error, OSError), closing(self.connect()) as database, database:
            for table in TABLES:
                database.executemany(f"DELETE FROM {table} WHERE folder = ?", [(folder,) for folder in gone])
            rows = [(entry.folder, data) for entry in fresh if (data := _encode(entry)) is not None]
            database.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?)", rows)

    def connect(self) -> sqlite3.Connection:
        """Open the stored index, or create it. Raises sqlite3.Error or OSError."""
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        database = sqlite3.connect(self._file, timeout=2)
        try:
            made = f"{_LAYOUT} {getattr(sys.modules['fedge'], '__version__', '')} {os.fsencode(self.root).hex()}"
            database.execute("CREATE TABLE IF NOT EXISTS made (how TEXT)")
            if (row := database.execute("SELECT how FROM made").fetchone()) is None or row[0] != made:
                with database:
                    for table, column in TABLES.items():
                        database.execute(f"DROP TABLE IF EXISTS {table}")
                        database.execute(f"CREATE TABLE {table} (folder BLOB PRIMARY KEY, {column} BLOB)")
                    database.execute("DELETE FROM made")
                    database.execute("INSERT INTO made VALUES (?)", (made,))
        except BaseException:
            database.close()
            raise
        return database


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(RunEntry)


def _encode(entry: RunEntry) -> bytes | None:
    """Return an entry's bytes; None if it cannot be stored, in which case the next process reads the run again."""
    try:
        return _ENCODER.encode(entry)
    except (OverflowError, RecursionError):  # a setting of more than 64 bits, or nested a thousand tables deep
        return None


def _decode(data: bytes) -> RunEntry:
    return _DECODER.decode(data)
