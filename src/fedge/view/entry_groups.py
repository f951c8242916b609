"""Runs of an index in groups: by equal settings, by sweep, or by the value of one setting."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NamedTuple

from fedge.report.settings_table import write_value
from fedge.view.run_entry import RunEntry
from fedge.view.selection import value_of

OTHERS, DAMAGED = "Others", "Damaged"


class EntryGroup(NamedTuple):
    """A label and its runs; `mixed` if they differ in more than the seed."""

    label: str
    entries: list[RunEntry]
    mixed: bool

    @property
    def key(self) -> str:
        """The key of the group's row on a page; it changes if a run is added or removed."""
        return sha256("".join(entry.key for entry in self.entries).encode()).hexdigest()[:16]

    @property
    def samples(self) -> list[RunEntry]:
        """One run per seed: as in reports, a seed that was run twice counts once, as its last finished run."""
        seeds: dict[Any, RunEntry] = {}
        for entry in self.entries:
            at = (entry.alike, entry.settings.get("seed"))
            if entry.summary is not None or at not in seeds:
                seeds[at] = entry
        return list(seeds.values())


def group_entries(entries: Iterable[RunEntry], by: str) -> list[EntryGroup]:
    """Group runs; those with simulated and with measured seconds never share a group."""
    groups: dict[tuple[str, str], list[RunEntry]] = {}
    for entry in entries:
        groups.setdefault((_label(entry, by), entry.clock if entry.problem is None else ""), []).append(entry)
    clocks = {clock for _, clock in groups if clock}
    found = []
    for (label, clock), runs in groups.items():
        shown = runs[0].name if by == "settings" and clock else label
        said = f"{shown} ({clock} seconds)" if clock and len(clocks) > 1 else shown
        found.append(EntryGroup(said, runs, len({run.alike for run in runs}) > 1))
    last = (OTHERS, DAMAGED)
    return sorted(found, key=lambda group: last.index(group.label) if group.label in last else -1)


def sweep_of(entry: RunEntry) -> str | None:
    """Return the folder of the sweep that a run belongs to."""
    if entry.sweep is None:
        return None
    return RunEntry(folder=entry.sweep, stamp=()).path or "(this folder)"


def _label(entry: RunEntry, by: str) -> str:
    if entry.problem is not None:
        return DAMAGED
    if by == "settings":
        return entry.alike
    found = sweep_of(entry) if by == "sweep" else value_of(entry, by)
    return OTHERS if found is None else write_value(found)
