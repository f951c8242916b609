"""The table of runs: search, filters, groups, sorting, and rows of one page at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from threading import Lock
from typing import Any, NamedTuple

import msgspec

from fedge.core.errors import ConfigError, nearest
from fedge.core.fields import components, describe
from fedge.report.settings_table import write_value
from fedge.report.statistics import Reached, to_target
from fedge.view.entry_groups import EntryGroup, group_entries, sweep_of
from fedge.view.histories import Histories, Sparkline
from fedge.view.notes import Notes, RunNote
from fedge.view.row_writer import RowWriter
from fedge.view.run_entry import RunEntry, status_of
from fedge.view.run_index import Entries, RunIndex
from fedge.view.selection import RunSelection, is_number, value_of
from fedge.view.table_choices import TableChoices, describe_column, find_choices, offer_the_same

SPECIAL = ("status", "path", "name", "algorithm", "rounds", "started", "tag", "note", "clock", "sweep")
"""Names of columns and conditions that are neither settings nor results."""
_FEW = 4  # number of varied settings shown as columns by default
_COSTS = ("rounds_to_target", "bytes_to_target", "sim_seconds_to_target")


class ShownRows(NamedTuple):
    """The rows that a page already shows: the `order` that it received, and the runs that have changed since."""

    order: str
    changed: frozenset[str]


class RunTable:
    """The runs of an index as rows. Thread-safe."""

    def __init__(self, index: RunIndex, notes: Notes, histories: Histories) -> None:
        self._index, self._notes, self._histories = index, notes, histories
        self._lock = Lock()
        self._choices: tuple[Entries, TableChoices] | None = None
        self._texts: dict[bytes, tuple[RunEntry, str]] = {}

    def choices(self) -> TableChoices:
        """Return the choices of filters and columns. They do not change if a run only appends records."""
        with self._lock:
            entries = self._index.entries
            if self._choices is None or not offer_the_same(self._choices[0], entries):
                self._choices = entries, find_choices(entries.values())
            else:
                self._choices = entries, self._choices[1]
            return self._choices[1]

    def select(self, wanted: RunSelection) -> list[RunEntry]:
        """Return the runs selected by the parameters, in the order of their paths. Raises ConfigError."""
        entries, notes = self._index.entries, self._notes.read()
        if wanted.runs:
            found = [entries[key] for key in dict.fromkeys(wanted.runs) if key in entries]
        else:
            found = list(entries.values())
        for condition in wanted.where:
            self._check_name("where", condition.name)
            value = self.reader(condition.name, wanted, notes)
            holds = condition.test()
            found = [entry for entry in found if holds(value(entry))]
        if wanted.words:
            found = [entry for entry in found if all(word in self._text(entry, notes) for word in wanted.words)]
        return found

    def page(self, wanted: RunSelection, shown: ShownRows | None = None) -> dict[str, Any]:
        """Return the rows and columns of one page, in the format of `/api/runs`.

        If the `order` of the shown rows is unchanged, return only the rows of changed runs.
        """
        chosen, notes = self.select(wanted), self._notes.read()
        choices = self.choices()
        columns = list(wanted.columns) or self._default_columns(chosen, wanted.group)
        for name in wanted.columns:
            self._check_name("column", name)
        if wanted.group not in ("", "settings", "sweep"):
            self._check_name("group", wanted.group)
        rows: Sequence[RunEntry | EntryGroup] = group_entries(chosen, wanted.group) if wanted.group else chosen
        if wanted.sort:
            self._check_name("sort", wanted.sort)
            rows = self._sorted(rows, wanted, notes)
        placed = rows[wanted.offset : wanted.offset + wanted.limit]
        page = {
            "total": len(self._index.entries),
            "matching": len(chosen),
            "damaged": sum(entry.problem is not None for entry in chosen),
            "num_rows": len(rows),
            "offset": wanted.offset,
            "columns": [describe_column(name, choices, wanted) for name in columns],
        }
        order = _digest(wanted, page, placed)
        if shown is not None and shown.order == order:
            placed = [row for row in placed if not shown.changed.isdisjoint(_keys(row))]
        make = RowWriter(self, wanted, notes, columns, choices.own)
        made = [make.group(row) if isinstance(row, EntryGroup) else make.run(row) for row in placed]
        return page | {"order": order, "rows": made}

    def status(self, entry: RunEntry) -> str:
        return status_of(entry, self._index.root)

    def spark(self, entry: RunEntry) -> list[float] | None:
        history = self._histories.known(entry)
        return None if history is None else history.spark

    def mean_spark(self, group: EntryGroup) -> Sparkline:
        return self._histories.mean(group.samples)

    def value(self, entry: RunEntry, name: str, wanted: RunSelection) -> Any:
        """Return a setting or a result of a run; for a metric its last value, its best, or that of a round."""
        is_metric = describe(name, entry.own_fields).role == "metric" and name not in entry.settings
        if wanted.which == "at" and is_metric:
            return self._histories.at(entry, name, wanted.round or 1)
        found = value_of(entry, name, wanted.which)
        if is_metric and (found is None or (wanted.which == "best" and entry.summary is None)):
            history = self._histories.known(entry)
            if history is not None and history.metric == name:
                return history.best if wanted.which == "best" else history.last
            return None if wanted.which == "best" else found
        return found

    def reader(self, name: str, wanted: RunSelection, notes: Mapping[str, RunNote]) -> Callable[[RunEntry], Any]:
        """Return a function that reads a setting, a result or one of `SPECIAL` from a run."""
        special: dict[str, Callable[[RunEntry], Any]] = {
            "status": self.status,
            "path": lambda entry: entry.path,
            "name": lambda entry: entry.name,
            "algorithm": lambda entry: entry.algorithm or None,
            "rounds": lambda entry: entry.round,
            "started": lambda entry: entry.started_s,
            "tag": lambda entry: list(notes[entry.note_key].tags) if entry.note_key in notes else [],
            "note": lambda entry: notes[entry.note_key].note if entry.note_key in notes else None,
            "clock": lambda entry: entry.clock,
            "sweep": sweep_of,
        }
        return special.get(name) or self._plain_reader(name, wanted)

    def _plain_reader(self, name: str, wanted: RunSelection) -> Callable[[RunEntry], Any]:
        """Return `value` for one name; values in the summary or the settings are read without their declarations."""
        choices = self.choices()
        if name in choices.settings and name not in choices.results:
            return lambda entry: entry.settings.get(name)
        if wanted.which != "last" or components(name) != (name,):
            return lambda entry: self.value(entry, name, wanted)

        def read(entry: RunEntry) -> Any:
            found = None if entry.summary is None else entry.summary.get(name)
            return self.value(entry, name, wanted) if found is None else found

        return read

    def _sorted(
        self, rows: Sequence[RunEntry | EntryGroup], wanted: RunSelection, notes: Mapping[str, RunNote]
    ) -> list[RunEntry | EntryGroup]:
        value = self.reader(wanted.sort, wanted, notes)

        def key(row: RunEntry | EntryGroup) -> Any:
            if isinstance(row, RunEntry):
                return value(row)
            if wanted.sort in SPECIAL:
                return row.label if wanted.sort == "name" else value(row.entries[0])
            found = self.estimate(row, wanted.sort, wanted)
            if isinstance(found, Reached):
                return found.estimate.mean if found.estimate else None
            return found

        keyed = [(_sortable(key(row)), row) for row in rows]
        known = [pair for pair in keyed if pair[0] is not None]
        known.sort(key=lambda pair: pair[0], reverse=wanted.descending)  # type: ignore[arg-type, return-value]
        return [row for _, row in known] + [row for found, row in keyed if found is None]  # unknown values come last

    def estimate(self, group: EntryGroup, name: str, wanted: RunSelection) -> Reached | Any:
        """Return the mean of a number over a group's finished seeds; otherwise the value that all its runs share."""
        values = list(map(self._plain_reader(name, wanted), group.entries))
        numbers = [value for value in values if value is not None]
        choices = self.choices()
        is_setting = name not in choices.results and (name in choices.settings or name in choices.same)
        if is_setting or not all(is_number(value) for value in numbers):
            first = write_value(values[0]) if values[0] is not None else None
            shared = all(value == values[0] for value in values)
            return first if shared else f"{len(set(map(write_value, values)))} values"
        known = {entry.folder: value for entry, value in zip(group.entries, values, strict=True)}
        results = [known[entry.folder] if entry.summary is not None else None for entry in group.samples]
        return to_target(results, group.mixed)

    def _default_columns(self, entries: Sequence[RunEntry], group: str) -> list[str]:
        choices = self.choices()
        shown = {"name", "algorithm.name", "rounds"} | ({"seed"} if group == "settings" else set())  # in other columns
        varied = [name for name in choices.settings if name not in shown]
        varied.sort(key=lambda name: (name != "seed", not name.startswith("algorithm."), "." not in name))
        varied = varied[:_FEW]
        judged = (choices.metrics[entry.folder] for entry in entries if entry.folder in choices.metrics)
        metrics = dict.fromkeys(judged) or {"accuracy": None}
        return [*varied, *list(metrics)[:2], *(name for name in _COSTS if name in choices.results)]

    def _text(self, entry: RunEntry, notes: Mapping[str, RunNote]) -> str:
        known = self._texts.get(entry.folder)
        if known is None or known[0] is not entry:
            parts = (entry.name, entry.path, entry.algorithm, str(entry.settings.get("data.name", "")), entry.id or "")
            known = self._texts[entry.folder] = entry, "\n".join(parts).lower()
        note = notes.get(entry.note_key) if notes else None
        return known[1] if note is None else f"{known[1]}\n{' '.join(note.tags)}\n{note.note}".lower()

    def _check_name(self, parameter: str, name: str) -> None:
        choices = self.choices()
        bare = name.removeprefix("config.")
        if name in SPECIAL or bare in choices.settings or bare in choices.same or name in choices.results:
            return
        known = [*SPECIAL, *choices.settings, *choices.same, *choices.results]
        raise ConfigError(f"{parameter}: no run has a setting or result {name!r}{nearest(name, known)}")


def _keys(row: RunEntry | EntryGroup) -> list[str]:
    return [entry.key for entry in row.entries] if isinstance(row, EntryGroup) else [row.key]


def _digest(wanted: RunSelection, page: Mapping[str, Any], rows: Sequence[RunEntry | EntryGroup]) -> str:
    """Return a digest of everything on a page except the contents of its rows."""
    named = [(row.key, row.label if isinstance(row, EntryGroup) else "") for row in rows]
    return sha256(msgspec.json.encode((wanted, page, named))).hexdigest()[:16]


def _sortable(value: Any) -> tuple[int, Any] | None:
    if value is None or value == []:
        return None
    return (0, float(value)) if is_number(value) else (1, write_value(value).lower())
