"""The rows of the table of runs, in the format of `/api/runs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from fedge.core.fields import TO_TARGET, Field, OwnFields, describe, fitting
from fedge.report.settings_table import write_value
from fedge.report.statistics import Reached
from fedge.report.tables import write
from fedge.view.entry_groups import EntryGroup
from fedge.view.histories import Sparkline
from fedge.view.notes import RunNote
from fedge.view.run_entry import RunEntry
from fedge.view.selection import RunSelection, is_number


class RowSource(Protocol):
    """The source of the values in rows; implemented by `RunTable`."""

    def status(self, entry: RunEntry) -> str: ...
    def spark(self, entry: RunEntry) -> list[float] | None: ...
    def mean_spark(self, group: EntryGroup) -> Sparkline: ...
    def estimate(self, group: EntryGroup, name: str, wanted: RunSelection) -> Reached | Any: ...
    def reader(self, name: str, wanted: RunSelection, notes: Mapping[str, RunNote]) -> Callable[[RunEntry], Any]: ...


class RowWriter:
    """Makes the rows of one page."""

    def __init__(
        self,
        table: RowSource,
        wanted: RunSelection,
        notes: Mapping[str, RunNote],
        columns: Sequence[str],
        own: OwnFields,
    ) -> None:
        self._table, self._wanted, self._notes, self._columns, self._own = table, wanted, notes, columns, own
        self._read = {name: table.reader(name, wanted, notes) for name in columns}

    def run(self, entry: RunEntry) -> dict[str, Any]:
        note = self._notes.get(entry.note_key, RunNote())
        return {
            "key": entry.key,
            "name": entry.name,
            "path": entry.path,
            "algorithm": entry.algorithm,
            "status": self._table.status(entry),
            "problem": entry.problem,
            "round": entry.round,
            "num_rounds": entry.num_rounds,
            "started": _date(entry.started_s),
            "networked": entry.networked,
            "tags": list(note.tags),
            "note": note.note,
            "metric": entry.metric,
            "spark": self._table.spark(entry),
            "values": {name: self._cell(entry, name) for name in self._columns},
        }

    def group(self, group: EntryGroup) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name in self._columns:
            found = self._table.estimate(group, name, self._wanted)
            if isinstance(found, Reached):
                values[name] = estimate_cell(found, describe(name, self._own))
            else:
                values[name] = {"value": found, "text": found or "–"}
        spark = self._table.mean_spark(group)
        return {
            "group": group.label,
            "key": group.key,
            "keys": [entry.key for entry in group.entries],
            "count": len(group.entries),
            "finished": sum(entry.summary is not None for entry in group.entries),
            "mixed": group.mixed,
            "metric": spark.metric,
            "spark": spark.values,
            "spark_of": {"n": spark.num_runs, "of": spark.num_all, "problem": spark.problem},
            "values": values,
        }

    def _cell(self, entry: RunEntry, name: str) -> dict[str, Any]:
        value = self._read[name](entry)
        if value is None:
            missed = name.endswith(TO_TARGET) and entry.summary is not None and entry.settings.get("target.metric")
            return {"value": None, "text": "not reached" if missed else "–"}
        if name in entry.settings or not is_number(value):
            return {"value": value, "text": write_value(value)}
        return {"value": value, "text": describe(name, self._own).write(value)}


def estimate_cell(found: Reached, declared: Field) -> dict[str, Any]:
    """Return an estimate of a result with its text and n of N: runs in the mean, of those in the group."""
    said = {"n": found.reached, "of": found.count}
    if found.estimate is None:
        return {"mean": None, "text": "–", **said}
    estimate = found.estimate
    unit = fitting(declared.units, estimate.mean)
    text = f"{write(estimate, unit)} {unit.name}".replace("\n", " ").strip()
    ends = {"low": estimate.low, "high": estimate.high, "band": estimate.band}
    return {"mean": estimate.mean, "text": text, **ends, **said}


def _date(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
