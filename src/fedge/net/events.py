"""The event log of a networked run: `events.jsonl` in the run directory, one JSON object per line.

Older lines are in events.jsonl.1, events.jsonl.2 and so on, up to a fixed number of files. A thread writes the log,
since a slow disk must not delay the server's answers.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from fedge.core.printable import printable
from fedge.core.storage import write_all, writing
from fedge.runs import files

MAX_BYTES = 64 << 20
NUM_OLDER = 4
_MAX_TEXT = 1000  # characters of one value
_MAX_WAITING_BYTES = 4 << 20  # of lines that wait for the disk
_PIECE_BYTES = 1 << 20

Value = str | int | float | bool | None


class EventLog:
    """An event log, open for appending. It is thread-safe."""

    def __init__(
        self, path: Path, max_bytes: int = MAX_BYTES, num_older: int = NUM_OLDER, clock: Callable[[], float] = time.time
    ) -> None:
        """Open or create the log at a path; a file rotates at `max_bytes`. Raises StorageError."""
        self._path, self._max_bytes, self._num_older, self._clock = path, max_bytes, num_older, clock
        self.problem = ""  # why lines cannot be written; empty while they can
        self._changed = threading.Condition()
        self._waiting: list[bytes] = []  # lines stay here until they are written
        self._num_waiting = 0  # bytes
        self._num_lost = 0
        self._closed = False
        with writing(path, "run the command again"):
            self._file = _open(path)
            self._length = _cut_half_line(self._file)
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    def append(self, event: str, **fields: Value) -> None:
        """Log an event; fields that are None are omitted. Returns at once, and does not raise if the disk is full.

        Lines that cannot be written are counted; a later event "gap" reports their number.
        """
        line = _encode(self._clock(), event, fields)
        with self._changed:
            if self._num_waiting + len(line) > _MAX_WAITING_BYTES or self._closed:
                self._num_lost += 1
            else:
                self._waiting.append(line)
                self._num_waiting += len(line)
                self._changed.notify_all()

    def flush(self) -> None:
        """Wait until every event logged so far has been written or counted as lost."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting)

    def close(self) -> None:
        """Write the remaining lines and close the file."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._waiting) or self._closed)
                if not self._waiting:
                    return
                lines, num_lost = list(self._waiting), self._num_lost
            problem = self._write([_encode(self._clock(), "gap", {"lines": num_lost}), *lines] if num_lost else lines)
            with self._changed:
                self.problem = problem
                self._num_lost += len(lines) if problem else -num_lost
                del self._waiting[: len(lines)]
                self._num_waiting = sum(map(len, self._waiting))

    def _write(self, lines: list[bytes]) -> str:
        """Write all of these lines or none; return the reason if that fails, else an empty string."""
        data = b"".join(lines)
        try:
            if self._length and self._length + len(data) > self._max_bytes:
                self._rotate()
            write_all(self._file, data)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._length)
            return f"cannot write {self._path}: {error.strerror or error}"
        self._length += len(data)
        return ""

    def _rotate(self) -> None:
        """Rotate the files and start a new one. A rotation that failed halfway is continued, not repeated."""
        if self._path.exists():
            for number in range(self._num_older, 0, -1):
                with suppress(FileNotFoundError):
                    os.replace(_older(self._path, number - 1), _older(self._path, number))
            if not self._num_older:
                self._path.unlink()
        new = _open(self._path)
        os.close(self._file)
        self._file, self._length = new, 0


def utc(now: float) -> str:
    """Return a time in seconds since 1970 as text, such as `2026-11-17T21:30:19.123Z`."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _older(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}") if number else path


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)


def _cut_half_line(file: int) -> int:
    """Remove an incomplete last line, left by a killed server; return the new length."""
    end = length = os.fstat(file).st_size
    while end:
        start = max(0, end - _PIECE_BYTES)
        last = os.pread(file, end - start, start).rfind(b"\n")
        if last >= 0:
            end = start + last + 1
            break
        end = start
    if end < length:
        os.ftruncate(file, end)
    return end


def _encode(now: float, event: str, fields: dict[str, Value]) -> bytes:
    known = {name: _bounded(value) for name, value in fields.items() if value is not None}
    line = files.encode({"time": utc(now), "event": event, **known}).decode()
    return printable(line).encode() + b"\n"


def _bounded(value: Value) -> Value:
    """Return a value, truncated and made encodable if it is text."""
    return value[:_MAX_TEXT].encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
