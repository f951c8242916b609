"""The table of runs: searched, filtered, grouped, sorted and written out, one page of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from threading import Lock
from typing import Any, NamedTuple

import msgspec

from fedge.core.errors import ConfigError, nearest
from fedge.core.fields import SUMS, TO_TARGET, Field, OwnFields, describe, fitting
from fedge.report.statistics import Reached, to_target
from fedge.report.tables import write
from fedge.view.histories import Histories
from fedge.view.notes import Notes, RunNote
from fedge.view.run_entry import RunEntry, status_of
from fedge.view.run_index import RunIndex
from fedge.view.selection import RunSelection, value_of

SPECIAL = ("status", "path", "name", "algorithm", "rounds", "started", "tag", "note", "clock", "sweep")
"""Columns and conditions that are neither a setting nor a result."""
OTHERS, DAMAGED = "Others", "Damaged"
_FEW = 4  # varied settings that are columns unless others are chosen
_COSTS = ("rounds_to_target", "bytes_to_target", "sim_seconds_to_target")


class TableChoices(NamedTuple):
    """What the runs of a folder can be filtered, grouped and shown by."""

    settings: Mapping[str, list[Any]]  # those in which runs differ, each with some of its values
    same: Mapping[str, Any]  # those that all runs share
    results: Sequence[str]
    own: OwnFields


class _Group(NamedTuple):
    label: str
    entries: list[RunEntry]
    mixed: bool


class RunTable:
    """The runs of an index as rows. Threads may share it."""

    def __init__(self, index: RunIndex, notes: Notes, histories: Histories) -> None:
        self._index, self._notes, self._histories = index, notes, histories
        self._lock = Lock()
        self._choices: tuple[Mapping[str, RunEntry], TableChoices] | None = None
        self._texts: dict[str, tuple[RunEntry, str]] = {}

    def choices(self) -> TableChoices:
        """Return what there is to choose from; found once for each state of the index."""
        with self._lock:
            entries = self._index.entries
            if self._choices is None or self._choices[0] is not entries:
                self._choices = entries, _find_choices(entries.values())
            return self._choices[1]

    def select(self, wanted: RunSelection) -> list[RunEntry]:
        """Return the runs that the parameters choose, in the order of their paths. Raises ConfigError."""
        entries, notes = self._index.entries, self._notes.read()
        if wanted.runs:
            found = [entries[key] for key in dict.fromkeys(wanted.runs) if key in entries]
        else:
            found = list(entries.values())
        for condition in wanted.where:
            self._check_name("where", condition.name)
            value = self._reader(condition.name, wanted, notes)
            found = [entry for entry in found if condition.holds(value(entry))]
        if wanted.words:
            found = [entry for entry in found if all(word in self._text(entry, notes) for word in wanted.words)]
        return found

    def page(self, wanted: RunSelection) -> dict[str, Any]:
        """Return the rows and columns of one page, as `/api/runs` documents them."""
        chosen, notes = self.select(wanted), self._notes.read()
        choices = self.choices()
        columns = list(wanted.columns) or self._default_columns(chosen)
        for name in wanted.columns:
            self._check_name("column", name)
        rows: Sequence[RunEntry | _Group] = self._group(chosen, wanted) if wanted.group else chosen
        if wanted.sort:
            self._check_name("sort", wanted.sort)
            rows = self._sorted(rows, wanted, notes)
        shown = rows[wanted.offset : wanted.offset + wanted.limit]
        make = _RowWriter(self, wanted, notes, columns, choices.own)
        return {
            "total": len(self._index.entries),
            "matching": len(chosen),
            "damaged": sum(entry.problem is not None for entry in chosen),
            "num_rows": len(rows),
            "offset": wanted.offset,
            "columns": [describe_column(name, choices) for name in columns],
            "rows": [make.group(row) if isinstance(row, _Group) else make.run(row) for row in shown],
        }

    def status(self, entry: RunEntry) -> str:
        return status_of(entry, self._index.root)

    def spark(self, entry: RunEntry) -> list[float] | None:
        history = self._histories.known(entry)
        return None if history is None else history.spark

    def value(self, entry: RunEntry, name: str, wanted: RunSelection) -> Any:
        """Return a setting or a result of a run: the last value of a metric, the best, or that of a round."""
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

    def _reader(self, name: str, wanted: RunSelection, notes: Mapping[str, RunNote]) -> Callable[[RunEntry], Any]:
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
            "sweep": _sweep,
        }
        return special.get(name) or (lambda entry: self.value(entry, name, wanted))

    def _sorted(
        self, rows: Sequence[RunEntry | _Group], wanted: RunSelection, notes: Mapping[str, RunNote]
    ) -> list[RunEntry | _Group]:
        value = self._reader(wanted.sort, wanted, notes)

        def key(row: RunEntry | _Group) -> Any:
            if isinstance(row, RunEntry):
                return value(row)
            if wanted.sort in SPECIAL:
                return row.label if wanted.sort == "name" else value(row.entries[0])
            found = self.estimate(row, wanted.sort, wanted)
            return found.estimate.mean if isinstance(found, Reached) and found.estimate else found

        keyed = [(_sortable(key(row)), row) for row in rows]
        known = [pair for pair in keyed if pair[0] is not None]
        known.sort(key=lambda pair: pair[0], reverse=wanted.descending)  # type: ignore[arg-type, return-value]
        return [row for _, row in known] + [row for found, row in keyed if found is None]  # unknown values come last

    def _group(self, entries: Iterable[RunEntry], wanted: RunSelection) -> list[_Group]:
        """Group runs; those with simulated and with measured seconds never share a group."""
        self._check_group(wanted.group)
        groups: dict[tuple[str, str], list[RunEntry]] = {}
        for entry in entries:
            label = self._label(entry, wanted.group)
            groups.setdefault((label, entry.clock if entry.problem is None else ""), []).append(entry)
        clocks = {clock for _, clock in groups if clock}
        found = []
        for (label, clock), runs in groups.items():
            shown = runs[0].name if wanted.group == "settings" and clock else label
            said = f"{shown} ({clock} seconds)" if clock and len(clocks) > 1 else shown
            found.append(_Group(said, runs, len({run.alike for run in runs}) > 1))
        last = (OTHERS, DAMAGED)
        return sorted(found, key=lambda group: last.index(group.label) if group.label in last else -1)

    def _label(self, entry: RunEntry, group: str) -> str:
        if entry.problem is not None:
            return DAMAGED
        if group == "settings":
            return entry.alike
        found = _sweep(entry) if group == "sweep" else value_of(entry, group)
        return OTHERS if found is None else _written(found)

    def estimate(self, group: _Group, name: str, wanted: RunSelection) -> Reached | Any:
        """Return the mean of a number over a group's finished seeds, or else the value that all its runs share."""
        values = [self.value(entry, name, wanted) for entry in group.entries]
        numbers = [value for value in values if value is not None]
        if name in group.entries[0].settings or not all(_is_number(value) for value in numbers):
            first = _written(values[0]) if values[0] is not None else None
            return first if all(value == values[0] for value in values) else f"{len(set(map(_written, values)))} values"
        seeds: dict[Any, Any] = {}  # a seed that was run twice counts once, as in reports
        for entry, value in zip(group.entries, values, strict=True):
            at = (entry.alike, entry.settings.get("seed"))
            if entry.summary is not None:
                seeds[at] = value
            else:
                seeds.setdefault(at, None)
        return to_target([seeds[at] for at in seeds], group.mixed)

    def _default_columns(self, entries: Sequence[RunEntry]) -> list[str]:
        choices = self.choices()
        varied = [name for name in choices.settings if name not in ("name", "algorithm.name", "rounds")]
        varied.sort(key=lambda name: (name != "seed", not name.startswith("algorithm."), "." not in name))
        varied = varied[:_FEW]
        metrics = dict.fromkeys(entry.metric for entry in entries if entry.problem is None) or {"accuracy": None}
        return [*varied, *list(metrics)[:2], *(name for name in _COSTS if name in choices.results)]

    def _text(self, entry: RunEntry, notes: Mapping[str, RunNote]) -> str:
        known = self._texts.get(entry.key)
        if known is None or known[0] is not entry:
            parts = (entry.name, entry.path, entry.algorithm, str(entry.settings.get("data.name", "")), entry.id or "")
            known = self._texts[entry.key] = entry, "\n".join(parts).lower()
        note = notes.get(entry.note_key)
        return known[1] if note is None else f"{known[1]}\n{' '.join(note.tags)}\n{note.note}".lower()

    def _check_name(self, parameter: str, name: str) -> None:
        choices = self.choices()
        bare = name.removeprefix("config.")
        if name in SPECIAL or bare in choices.settings or bare in choices.same or name in choices.results:
            return
        known = [*SPECIAL, *choices.settings, *choices.same, *choices.results]
        raise ConfigError(f"{parameter}: no run has a setting or result {name!r}{nearest(name, known)}")

    def _check_group(self, group: str) -> None:
        if group not in ("settings", "sweep"):
            self._check_name("group", group)


class _RowWriter:
    """Makes the rows of one page."""

    def __init__(
        self,
        table: RunTable,
        wanted: RunSelection,
        notes: Mapping[str, RunNote],
        columns: Sequence[str],
        own: OwnFields,
    ) -> None:
        self._table, self._wanted, self._notes, self._columns, self._own = table, wanted, notes, columns, own

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

    def group(self, group: _Group) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name in self._columns:
            found = self._table.estimate(group, name, self._wanted)
            values[name] = (
                self._mean(name, found) if isinstance(found, Reached) else {"value": found, "text": found or "–"}
            )
        return {
            "group": group.label,
            "keys": [entry.key for entry in group.entries],
            "count": len(group.entries),
            "finished": sum(entry.summary is not None for entry in group.entries),
            "mixed": group.mixed,
            "statuses": _counted(self._table.status(entry) for entry in group.entries),
            "values": values,
        }

    def _cell(self, entry: RunEntry, name: str) -> dict[str, Any]:
        value = self._table.value(entry, name, self._wanted)
        if value is None:
            missed = name.endswith(TO_TARGET) and entry.summary is not None and entry.settings.get("target.metric")
            return {"value": None, "text": "not reached" if missed else "–"}
        if name in entry.settings or not _is_number(value):
            return {"value": value, "text": _written(value)}
        return {"value": value, "text": describe(name, self._own).write(value)}

    def _mean(self, name: str, found: Reached) -> dict[str, Any]:
        said = {"n": found.reached, "of": found.count}
        if found.estimate is None:
            return {"mean": None, "text": "–", **said}
        estimate, declared = found.estimate, describe(name, self._own)
        unit = fitting(declared.units, estimate.mean)
        text = f"{write(estimate, unit)} {unit.name}".replace("\n", " ").strip()
        ends = {"low": estimate.low, "high": estimate.high, "band": estimate.band}
        return {"mean": estimate.mean, "text": text, **ends, **said}


def describe_column(name: str, choices: TableChoices) -> dict[str, Any]:
    """Return title, unit and direction of a column."""
    is_setting = name.removeprefix("config.") in (choices.settings if name not in choices.results else ())
    if is_setting or name in choices.same:
        return {"name": name, "title": name, "unit": "", "role": "setting", "better": "neither"}
    declared: Field = describe(name, choices.own)
    return {
        "name": name,
        "title": declared.title,
        "unit": declared.units[0].name,
        "role": "result",
        "better": declared.better,
    }


def _find_choices(entries: Iterable[RunEntry]) -> TableChoices:
    values: dict[str, dict[str, Any]] = {}
    counts: dict[str, int] = {}
    results: dict[str, None] = {}
    own: dict[str, Field] = {}
    num_runs = 0
    for entry in entries:
        if entry.problem is not None:
            continue
        num_runs += 1
        for name, value in entry.settings.items():
            counts[name] = counts.get(name, 0) + 1
            seen = values.setdefault(name, {})
            if len(seen) < 50:
                seen.setdefault(value if isinstance(value, str) else repr(value), value)
        results |= dict.fromkeys(name for name, value in (entry.summary or entry.last).items() if not _is_text(value))
        own |= entry.own_fields
    sums = [total + end for total, parts in SUMS.items() for end in ("", TO_TARGET) if parts[0] + end in results]
    varied = {name: list(seen.values()) for name, seen in values.items() if len(seen) > 1 or counts[name] < num_runs}
    same = {name: next(iter(seen.values())) for name, seen in values.items() if name not in varied}
    return TableChoices(varied, same, [*results, *sums], own)


def _sweep(entry: RunEntry) -> str | None:
    if entry.sweep is None:
        return None
    return RunEntry(folder=entry.sweep, stamp=()).path or "(this folder)"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _sortable(value: Any) -> tuple[int, Any] | None:
    if value is None or value == []:
        return None
    return (0, float(value)) if _is_number(value) else (1, _written(value).lower())


def _counted(words: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in words:
        found[word] = found.get(word, 0) + 1
    return found


def _date(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
