"""The metric of each run over its rounds: a sparkline, the best and the last value, and the whole curve for means.

Reading all records of a thousand runs takes seconds, so it runs in the background and the result is stored. Curves are
stored separately and read only for groups on display, because the first view needs none.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fedge.core.errors import ConfigError, FedgeError
from fedge.core.fields import describe
from fedge.report.series import Array, align
from fedge.report.thinning import thin
from fedge.runs import files
from fedge.view.run_entry import RunEntry, Stamp
from fedge.view.run_index import RunIndex

MOST_POINTS = 40
"""Number of points of a sparkline."""
_BUCKETS = MOST_POINTS // 4
_MOST_MEANS = 2_000  # number of cached means of groups


class History(msgspec.Struct, frozen=True):
    """One metric of a run, valid for a stamp of its files."""

    stamp: Stamp
    metric: str
    spark: list[float]
    best: float | None
    last: float | None


class Sparkline(NamedTuple):
    """The mean of a metric over some of all runs; without values, there is a problem, or runs are not read yet."""

    metric: str
    values: list[float] | None
    num_runs: int
    num_all: int
    problem: str | None = None


Curve = tuple[Array, Array]
"""The rounds in which a metric was measured, and its values."""


class Histories:
    """The histories of the runs of an index."""

    def __init__(self, index: RunIndex) -> None:
        self._index = index
        self._found: dict[bytes, History] = {}
        self._means: dict[tuple[tuple[bytes, Stamp], ...], Sparkline] = {}
        self._loaded = False

    def known(self, entry: RunEntry) -> History | None:
        """Return a run's history as last read; None if not read yet. A run in progress may have recorded more since."""
        if not self._loaded:
            self._load()
        return self._found.get(entry.folder)

    def refresh(self, entries: Iterable[RunEntry]) -> Iterator[str]:
        """Read the runs that have changed; yield the key of each one once it is read."""
        if not self._loaded:
            self._load()
        fresh: list[tuple[bytes, Curve]] = []
        for entry in entries:
            known = self._found.get(entry.folder)
            if entry.problem is not None or (known and (known.stamp, known.metric) == (entry.stamp, entry.metric)):
                continue
            self._found[entry.folder], curve = _read(entry, self._index.folder(entry))
            fresh.append((entry.folder, curve))
            yield entry.key
        if fresh:
            self._store(fresh)

    def mean(self, runs: Sequence[RunEntry]) -> Sparkline:
        """Return the mean over the finished runs among these, averaged per round and then thinned."""
        finished = [entry for entry in runs if entry.summary is not None]
        metrics = list(dict.fromkeys(entry.metric for entry in finished))
        nothing = Sparkline(", ".join(metrics), None, 0, len(runs))
        if len(metrics) != 1:
            return nothing._replace(problem="metrics differ" if metrics else "none finished")
        found = [self.known(entry) for entry in finished]
        if any(one is None or one.stamp != run.stamp for one, run in zip(found, finished, strict=True)):
            return nothing  # it will be read soon
        averaged = tuple((entry.folder, entry.stamp) for entry in finished)
        mean = self._means.get(averaged)
        if mean is None:
            if len(self._means) >= _MOST_MEANS:
                self._means.clear()
            mean = self._means[averaged] = self._average(metrics[0], finished)
        return mean._replace(num_all=len(runs))

    @np.errstate(over="ignore", invalid="ignore")  # a mean beyond any float has no sparkline
    def _average(self, metric: str, runs: Sequence[RunEntry]) -> Sparkline:
        curves = [curve for curve in self._curves(runs) if len(curve[0])]
        try:
            values = align("", curves)[1].mean(axis=0) if curves else np.zeros(0)
        except ConfigError:
            return Sparkline(metric, None, 0, len(runs), "no common rounds")
        return Sparkline(metric, _spark(values), len(curves), len(runs))

    def at(self, entry: RunEntry, metric: str, round: int) -> float | None:
        """Return a metric in one round; None if it was not measured then. Reads only a few parts of the records."""
        if entry.problem is not None:  # its records may be a pipe without an end
            return None
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

    def _store(self, fresh: Sequence[tuple[bytes, Curve]]) -> None:
        rows = [(folder, _ENCODER.encode(self._found[folder])) for folder, _ in fresh]
        curves = [
            (folder, _ENCODER.encode((self._found[folder].stamp, np.stack(curve).tobytes()))) for folder, curve in fresh
        ]
        with suppress(sqlite3.Error, OSError), closing(self._index.connect()) as database, database:
            database.executemany("INSERT OR REPLACE INTO histories VALUES (?, ?)", rows)
            database.executemany("INSERT OR REPLACE INTO curves VALUES (?, ?)", curves)

    def _curves(self, entries: Sequence[RunEntry]) -> list[Curve]:
        """Return whole curves from the store; read the records again for runs without a curve of this stamp."""
        stored: dict[bytes, bytes] = {}
        with suppress(sqlite3.Error, OSError, ValueError), closing(self._index.connect()) as database:
            for entry in entries:
                for (data,) in database.execute("SELECT curve FROM curves WHERE folder = ?", (entry.folder,)):
                    stamp, curve = _CURVE_DECODER.decode(data)
                    if stamp == entry.stamp:
                        stored[entry.folder] = curve
        curves = []
        for entry in entries:
            if entry.folder not in stored:
                curves.append(_read(entry, self._index.folder(entry))[1])
            else:
                rounds, values = np.frombuffer(stored[entry.folder]).reshape(2, -1)
                curves.append((rounds, values))
        return curves


def find_record(file: Path, round: int) -> dict[str, Any] | None:
    """Return the record of a round by bisection, because rounds are in order; None if there is none.

    Raises ValueError if a record on the way is damaged.
    """
    with file.open("rb") as opened:
        low, high = 0, os.fstat(opened.fileno()).st_size  # the record starts in [low, high)
        while low < high:
            middle = (low + high) // 2
            start, line = _line_from(opened, middle)
            if not line or start >= high:
                high = middle
                continue
            number = msgspec.json.decode(line, type=_Numbered).round
            if number == round:
                return msgspec.json.decode(line, type=dict[str, Any])
            low, high = (start + len(line), high) if number < round else (low, middle)
        return None


class _Numbered(msgspec.Struct):
    round: int


def _line_from(opened: Any, place: int) -> tuple[int, bytes]:
    """Return the first whole line that starts at or after an offset, and its start; empty at the end."""
    opened.seek(max(0, place - 1))
    if place:
        opened.readline()  # the rest of the previous line
    start, line = opened.tell(), opened.readline()
    return (start, line) if line.endswith(b"\n") else (place, b"")


def _read(entry: RunEntry, folder: Path) -> tuple[History, Curve]:
    """Read one metric of all rounds; other fields are skipped, which is much faster."""
    kind = msgspec.defstruct(
        "_Point", [("round", float), ("value", float | None, None)], rename={"value": entry.metric}
    )
    try:
        data = files.read_bytes(folder / files.ROUNDS) or b""
        points: list[Any] = msgspec.json.Decoder(kind).decode_lines(data[: data.rfind(b"\n") + 1])
        measured = [(point.round, point.value) for point in points if point.value is not None]
    except (FedgeError, ValueError, RecursionError):
        measured = []
    rounds, values = np.array(measured, np.float64).reshape(-1, 2).T
    if not measured:
        return History(entry.stamp, entry.metric, [], None, None), (rounds, values)
    rank = describe(entry.metric, entry.own_fields).rank
    best = min((float(values.min()), float(values.max())), key=rank)
    return History(entry.stamp, entry.metric, _spark(values), best, float(values[-1])), (rounds, values)


def _spark(values: Array) -> list[float]:
    return [float(f"{value:.4g}") for value in values[thin(_BUCKETS, values)]] if len(values) else []


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(History)
_CURVE_DECODER = msgspec.msgpack.Decoder(tuple[Stamp, bytes])
