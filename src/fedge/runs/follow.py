"""Follow the records of a run: return those that are new since the last call."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from fedge.core.metric_declaration import declared_fields
from fedge.core.storage import reading
from fedge.runs import files
from fedge.runs.read import decode_records


class Cursor(NamedTuple):
    """How far a follower has read the records of a run."""

    run: str | None  # the run's id
    generation: int
    offset: int  # bytes of rounds.jsonl


class NewRecords(NamedTuple):
    """The result of one `follow` call."""

    records: list[dict[str, Any]]  # of complete rounds, in order
    cursor: Cursor  # for the next call
    restarted: bool  # `records` has all of the run's records; discard those returned before


def follow(path: Path, cursor: Cursor | None = None) -> NewRecords:
    """Return the records of a run that are new since a cursor; without a cursor, all of them.

    If the run was restored since then, or replaced by another run, reading starts over. It takes no lock, so it can be
    called at any time. Raises RunError if there is no run, or if its records are damaged.
    """
    file = path / files.ROUNDS
    while True:
        _, mark = files.read_config(path)
        log = _log_of(mark)
        start, data = _read_from(file, cursor.offset if cursor is not None and cursor[:2] == log else 0)
        if _log_of(files.read_config(path)[1]) == log:  # otherwise it may have been truncated meanwhile
            break
    whole = files.whole_lines(data)
    restarted = cursor is not None and cursor != (*log, start)
    own = declared_fields(mark.metrics)
    return NewRecords(decode_records(file, whole, own), Cursor(*log, start + len(whole)), restarted)


def _log_of(mark: files.RunMark) -> tuple[str | None, int]:
    return mark.id, mark.generation


def _read_from(file: Path, offset: int) -> tuple[int, bytes]:
    """Return the bytes from an offset on, and their actual start, which is 0 if no line starts at the offset."""
    with reading(file):
        try:
            with file.open("rb") as opened:
                if offset > 0:
                    opened.seek(offset - 1)
                    if opened.read(1) == b"\n":
                        return offset, opened.read()
                    opened.seek(0)
                return 0, opened.read()
        except FileNotFoundError:
            return 0, b""
