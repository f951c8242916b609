"""The metric of each run over its rounds, in a few numbers: a sparkline, the best and the last value.

Reading all records of a thousand runs takes seconds, so it happens in the background, and the result is stored.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fedge.core.errors import FedgeError
from fedge.core.fields import describe
from fedge.report.thinning import thin
from fedge.runs import files
from fedge.view.run_entry import RunEntry, Stamp
from fedge.view.run_index import RunIndex

MOST_POINTS = 40
"""Of a sparkline."""
_BUCKETS = MOST_POINTS // 4
_LOOK_BYTES = 8_192


class History(msgspec.Struct, frozen=True):
    """One metric of a run, as of a stamp."""

    stamp: Stamp
    metric: str
    spark: list[float]
    best: float | None
    last: float | None


class Histories:
    """The histories of the runs of an index."""

    def __init__(self, index: RunIndex) -> None:
        self._index = index
        self._found: dict[bytes, History] = {}
        self._loaded = False

    def known(self, entry: RunEntry) -> History | None:
        """Return what was read of a run so far; None if nothing was. A running run may have recorded more since."""
        if not self._loaded:
            self._load()
        return self._found.get(entry.folder)

    def refresh(self, entries: Iterable[RunEntry]) -> Iterator[str]:
        """Read the runs that have changed; yield the key of each as soon as it is known."""
        if not self._loaded:
            self._load()
        fresh: list[RunEntry] = []
        for entry in entries:
            known = self._found.get(entry.folder)
            if entry.problem is not None or (known and (known.stamp, known.metric) == (entry.stamp, entry.metric)):
                continue
            self._found[entry.folder] = _read(entry, self._index.folder(entry))
            fresh.append(entry)
            yield entry.key
        if fresh:
            self._store(fresh)

    def at(self, entry: RunEntry, metric: str, round: int) -> float | None:
        """Return a metric in one round; None if it was not measured in it. Reads a few parts of the records."""
        try:
            record = find_record(self._index.folder(entry) / files.ROUNDS, round)
        except (OSError, ValueError, RecursionError):
            return None
        value = None if record is None else record.get(metric)
        return value if isinstance(value, int | float) else None

    def _load(self) -> None:
        self._loaded = True
        with suppress(sqlite3.Error, OSError, ValueError), closing(self._index.connect()) as database:
            for folder, data in database.execute("SELECT folder, history FROM histories"):
                self._found.setdefault(folder, _DECODER.decode(data))

    def _store(self, fresh: list[RunEntry]) -> None:
        rows = [(entry.folder, _ENCODER.encode(self._found[entry.folder])) for entry in fresh]
        with suppress(sqlite3.Error, OSError), closing(self._index.connect()) as database, database:
            database.executemany("INSERT OR REPLACE INTO histories VALUES (?, ?)", rows)


def find_record(file: Path, round: int) -> dict[str, Any] | None:
    """Return the record of a round by bisection, as rounds are in order; None if there is none."""
    with file.open("rb") as opened:
        low, high = 0, os.fstat(opened.fileno()).st_size  # the record starts in [low, high)
        while low < high:
            middle = (low + high) // 2
            start, line = _line_from(opened, middle)
            if not line or start >= high:
                high = middle
                continue
            record = msgspec.json.decode(line, type=dict[str, Any])
            if record["round"] == round:
                return record
            low, high = (start + len(line), high) if record["round"] < round else (low, middle)
        start, line = _line_from(opened, low)
        record = msgspec.json.decode(line, type=dict[str, Any]) if line else {}
        return record if record.get("round") == round else None


def _line_from(opened: Any, place: int) -> tuple[int, bytes]:
    """Return the first whole line that starts at or after a place, and where it starts; empty at the end."""
    opened.seek(max(0, place - 1))
    data = opened.read(_LOOK_BYTES)
    first = 0 if place == 0 else data.find(b"\n") + 1
    while place and first == 0 and data:  # a longer line
        more = opened.read(_LOOK_BYTES)
        if not more:
            return place, b""
        data += more
        first = data.find(b"\n") + 1
    while (end := data.find(b"\n", first)) < 0:
        more = opened.read(_LOOK_BYTES)
        if not more:
            return place, b""
        data += more
    return max(0, place - 1) + first, data[first : end + 1]


def _read(entry: RunEntry, folder: Path) -> History:
    """Read one metric of all rounds; other fields are skipped, which is much faster."""
    kind = msgspec.defstruct(
        "_Point", [("round", float), ("value", float | None, None)], rename={"value": entry.metric}
    )
    try:
        data = files.read_bytes(folder / files.ROUNDS) or b""
        points: list[Any] = msgspec.json.Decoder(kind).decode_lines(data[: data.rfind(b"\n") + 1])
        values = np.array([point.value for point in points if point.value is not None], np.float64)
    except (FedgeError, ValueError, RecursionError):
        values = np.zeros(0)
    if not len(values):
        return History(entry.stamp, entry.metric, [], None, None)
    rank = describe(entry.metric, entry.own_fields).rank
    best = min((float(values.min()), float(values.max())), key=rank)
    spark = [float(f"{value:.4g}") for value in values[thin(_BUCKETS, values)]]
    return History(entry.stamp, entry.metric, spark, best, float(values[-1]))


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(History)
