"""The newest events of a networked run, from the end of `events.jsonl`; safe while the server writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from fedge.core.errors import FedgeError
from fedge.runs import files

LAST_BYTES = 1 << 20
"""Bytes of the log that pages and charts read."""


class EventCursor(NamedTuple):
    """The position up to which the events of a run were read."""

    inode: int
    offset: int


class LastEvents(NamedTuple):
    """Events, oldest first; `cut` if older ones were skipped."""

    events: list[dict[str, Any]]
    cursor: EventCursor
    cut: bool


def read_last_events(folder: Path, most_bytes: int, cursor: EventCursor | None = None) -> LastEvents:
    """Return the events since a cursor, from the last `most_bytes`; an event stands for each damaged line.

    After a rotation, reading starts at the beginning of the new file.
    """
    try:
        with (folder / files.EVENTS).open("rb") as opened:
            status = os.fstat(opened.fileno())
            same = cursor is not None and cursor.inode == status.st_ino and cursor.offset <= status.st_size
            start = cursor.offset if cursor is not None and same else 0
            cut = status.st_size - start > most_bytes
            opened.seek(status.st_size - most_bytes if cut else start)
            if cut:
                opened.readline()  # the rest of a line
            begin = opened.tell()
            data = opened.read()
    except OSError:
        return LastEvents([], cursor or EventCursor(0, 0), False)
    whole = files.whole_lines(data)
    return LastEvents(_decode(whole), EventCursor(status.st_ino, begin + len(whole)), cut)


def _decode(lines: bytes) -> list[dict[str, Any]]:
    found = []
    for line in lines.split(b"\n")[:-1]:
        try:
            found.append(files.decode(Path(files.EVENTS), line))
        except FedgeError:
            found.append({"event": "damaged", "reason": "a line of events.jsonl cannot be read"})
    return found
