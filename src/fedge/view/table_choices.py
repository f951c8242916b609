"""The settings and results by which the runs of a folder can be filtered, grouped and shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedge.core.fields import SUMS, TO_TARGET, Field, OwnFields, describe
from fedge.view.run_entry import RunEntry
from fedge.view.run_index import Entries, IndexChange
from fedge.view.selection import RunSelection


class TableChoices(NamedTuple):
    """The settings and results of runs, with some of their values."""

    settings: Mapping[str, list[Any]]  # that differ between runs, each with some of its values
    same: Mapping[str, Any]  # shared by all runs
    results: Sequence[str]
    own: OwnFields
    metrics: Mapping[bytes, str]  # by folder: the metric that judges a run


def describe_column(name: str, choices: TableChoices, wanted: RunSelection) -> dict[str, Any]:
    """Return title, unit and direction of a column, and `which` values of a metric it shows unless the last ones."""
    is_setting = name.removeprefix("config.") in (choices.settings if name not in choices.results else ())
    if is_setting or name in choices.same:
        return {"name": name, "title": name, "unit": "", "role": "setting", "better": "neither", "which": ""}
    declared: Field = describe(name, choices.own)
    which = {"last": "", "best": "best", "at": f"round {wanted.round}"}[wanted.which]
    return {
        "name": name,
        "title": declared.title,
        "unit": declared.units[0].name,
        "role": "result",
        "better": declared.better,
        "which": which if declared.role == "metric" else "",
    }


def offer_the_same(before: Entries, now: Entries) -> bool:
    """Whether two states of an index have the same settings and names of results, and differ in values only."""
    if before is now:
        return True
    change = IndexChange.between(before, now)
    return not (change.added or change.removed) and all(
        before[key].settings == now[key].settings
        and before[key].problem == now[key].problem
        and before[key].metrics == now[key].metrics
        and (before[key].summary or before[key].last).keys() == (now[key].summary or now[key].last).keys()
        for key in change.changed
    )


def find_choices(entries: Iterable[RunEntry]) -> TableChoices:
    values: dict[str, dict[str, Any]] = {}
    counts: dict[str, int] = {}
    results: dict[str, None] = {}
    own: dict[str, Field] = {}
    metrics: dict[bytes, str] = {}
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
        results |= dict.fromkeys(
            name for name, value in (entry.summary or entry.last).items() if not isinstance(value, str)
        )
        own |= entry.own_fields
        metrics[entry.folder] = entry.metric
    sums = [total + end for total, parts in SUMS.items() for end in ("", TO_TARGET) if parts[0] + end in results]
    varied = {name: list(seen.values()) for name, seen in values.items() if len(seen) > 1 or counts[name] < num_runs}
    same = {name: next(iter(seen.values())) for name, seen in values.items() if name not in varied}
    return TableChoices(varied, same, [*results, *sums], own, metrics)
