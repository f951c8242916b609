"""The SQLite file of a registry: its tables, opening it, and translating its errors."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from sqlite3 import Connection

from fedge.core.errors import RunError, StorageError

FORMAT = 1
_APPLICATION = 0x46444752  # "FDGR": distinguishes a registry from other SQLite files
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH)
_IN_USE = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_REMEDIES = {
    sqlite3.SQLITE_FULL: "free space on that disk",
    sqlite3.SQLITE_IOERR: "free space on that disk, or repair it",
    sqlite3.SQLITE_READONLY: "make it writable",
    sqlite3.SQLITE_CANTOPEN: "make its folder readable and writable",
    sqlite3.SQLITE_PERM: "make it writable",
}
_BUSY_S = 10.0  # how long writers and readers wait for each other
_TABLES = f"""
BEGIN;
CREATE TABLE client (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    named INTEGER NOT NULL,
    facts TEXT NOT NULL,
    joined REAL NOT NULL,
    last_seen REAL NOT NULL,
    state TEXT NOT NULL,
    bytes_down INTEGER NOT NULL DEFAULT 0,
    bytes_up INTEGER NOT NULL DEFAULT 0,
    address TEXT NOT NULL,
    fingerprint TEXT,
    expires REAL
) STRICT;
CREATE TABLE certificate (
    fingerprint TEXT NOT NULL,
    client INTEGER NOT NULL REFERENCES client,
    first_seen REAL NOT NULL,
    PRIMARY KEY (fingerprint, client)
) STRICT, WITHOUT ROWID;
CREATE TABLE task (
    client INTEGER NOT NULL,
    token TEXT NOT NULL,
    round INTEGER NOT NULL,
    exchange INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    ended REAL NOT NULL,
    reason TEXT NOT NULL,
    bytes_down INTEGER NOT NULL,
    bytes_up INTEGER NOT NULL,
    down_s REAL NOT NULL,
    compute_s REAL NOT NULL,
    up_s REAL NOT NULL,
    abandoned INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (client, token)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_round ON task (round);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {FORMAT};
COMMIT;
"""


def open_for_writing(path: Path) -> Connection:
    """Open or create the file, so that committed transactions survive a power cut."""
    with in_file(path):
        connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            ((num_tables,),) = connection.execute("SELECT COUNT(*) FROM sqlite_master")
            if num_tables == 0:
                connection.executescript(_TABLES)
            _check(path, connection)
            ((verdict,),) = connection.execute("PRAGMA quick_check(1)")
            if verdict != "ok":
                raise damaged(path, verdict)
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def open_for_reading(path: Path) -> Iterator[Connection]:
    """Open the file without modifying it or the files that SQLite keeps next to it."""
    if not path.is_file():
        raise RunError(f"no registry at {path}: expected a run of `fedge server`")
    with in_file(path):
        # Without a log file no server has it open, so it cannot change while it is read.
        rest = "mode=ro" if os.path.exists(f"{path}-wal") else "mode=ro&immutable=1"
        address = f"{path.absolute().as_uri()}?{rest}"
        connection = sqlite3.connect(address, uri=True, timeout=_BUSY_S, isolation_level=None)
        try:
            _check(path, connection)
            yield connection
        finally:
            connection.close()


@contextmanager
def transaction(path: Path, connection: Connection) -> Iterator[Connection]:
    """Run a transaction: committed durably at the end, rolled back on an error."""
    with in_file(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # after a full disk, for example, SQLite has already rolled back
                connection.execute("ROLLBACK")
            raise


@contextmanager
def in_file(path: Path) -> Iterator[None]:
    """Turn SQLite errors into errors that name the file and a remedy."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise damaged(path, str(error)) from error
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code is None and not isinstance(error, sqlite3.OperationalError):
            raise  # wrong use of the library
        if code is None or code & 0xFF in _DAMAGED:
            raise damaged(path, str(error)) from error
        if code & 0xFF in _IN_USE:
            raise RunError(f"{path} is in use by another process; wait until it ends, or stop it") from error
        if code & 0xFF in _REMEDIES:
            remedy = _REMEDIES[code & 0xFF]
            raise StorageError(f"cannot write {path}: {error}; {remedy} and rerun the command") from error
        raise


def _check(path: Path, connection: Connection) -> None:
    ((application,),) = connection.execute("PRAGMA application_id")
    ((format,),) = connection.execute("PRAGMA user_version")
    if application != _APPLICATION:
        raise damaged(path, "it is not a fedge registry")
    if format > FORMAT:
        raise RunError(
            f"{path} has format {format}, but this version of fedge reads up to format {FORMAT}; upgrade fedge"
        )
    connection.execute("PRAGMA trusted_schema = OFF")
    if connection.execute("SELECT name FROM sqlite_master WHERE type NOT IN ('table', 'index')").fetchall():
        raise damaged(path, "it has views or triggers, which could run code")


def damaged(path: Path, reason: str) -> RunError:
    """Return the error for a file with unexpected content."""
    return RunError(f"{path} is damaged: {reason}; restore it and the files next to it from a backup")
