"""The content of a report, independent of its format: page, Markdown or LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from fedge.core.errors import ConfigError, FedgeError
from fedge.core.fields import describe, is_to_target, measured_on
from fedge.core.printable import printable
from fedge.report.analysis_tables import capital, importance_table, paired_table, relation_tables
from fedge.report.bars import bars
from fedge.report.groups import RunGroup, group_runs, has, own_fields, varied
from fedge.report.heatmap import heatmap
from fedge.report.labels import DisplayNames, sorted_values
from fedge.report.learning_curves import curves
from fedge.report.pairs import find_baseline
from fedge.report.pareto_chart import pareto
from fedge.report.reproduction import commands, common_toml
from fedge.report.run_results import outcome
from fedge.report.series import trace
from fedge.report.tables import RESULTS, TableCells, compare, grid
from fedge.report.user_accuracy import user_accuracies, users
from fedge.runs import Run

_OUTCOMES = (*RESULTS, "mean_weight_divergence", "median_sim_seconds")


class Figure(NamedTuple):
    """A named chart, drawn on request; notes state what it leaves out, and why."""

    title: str
    draw: Callable[[], Any]
    notes: Sequence[str] = ()


class Listing(NamedTuple):
    """Text for the reader to copy, such as a file or commands."""

    title: str
    text: str


class Section(NamedTuple):
    """A heading and its content."""

    title: str
    parts: Sequence[TableCells | Figure | Listing | str]


class Document(NamedTuple):
    """A report; `source` states when, by which version and from which folders it was made."""

    title: str
    sections: Sequence[Section]
    source: str = ""


def describe_runs(
    runs: Sequence[Run],
    problems: Sequence[str] = (),
    title: str = "Fedge report",
    baseline: str | None = None,
    source: str = "",
) -> Document:
    """Return the report on these runs; `problems` states which were left out, and why.

    `baseline` names the group that others are compared with, seed by seed, as in `find_baseline`; by default the first.
    """
    groups = group_runs(runs)
    if baseline:
        find_baseline(groups, baseline)  # raises now, not in the middle of the report
    finished = [run for run in runs if run.summary is not None]
    own = own_fields(runs)
    names = (*_OUTCOMES, *(name for name in own if measured_on(name) == "test set"))
    outcomes = [name for name in names if any(outcome(run, name) is not None for run in finished)]
    judged = outcomes[:1] + _to_target(outcomes)[:1]
    sections = [
        Section("Results", [_counted(runs, groups), grid(compare(groups)), *_figures(groups, outcomes)]),
        Section("Paired comparison", [paired_table(groups, name, baseline) for name in judged])
        if len(groups) > 1
        else None,
        Section("Parameter importance", [importance_table(finished, name) for name in judged])
        if len(varied(finished)) > 1
        else None,
        Section("Settings and results", list(relation_tables(finished, outcomes, own))),
        Section("Configuration", _configuration(runs)),
        Section("Environment", [_environment(runs)]),
        Section("Reproduce", _commands(runs)),
        Section("Left out", list(problems)),
    ]
    return Document(title, [section for section in sections if section and section.parts], source)


def describe_source(paths: Sequence[Path], made: datetime) -> str:
    """Return when a report was made, by which version of Fedge, and from which folders."""
    folders = ", ".join(str(path) for path in paths)
    return f"Made on {made.day} {made:%B %Y, %H:%M %Z} by Fedge {version('fedge')} from {folders}"


def _counted(runs: Sequence[Run], groups: Sequence[RunGroup]) -> str:
    finished = sum(run.summary is not None for run in runs)
    rest = f", {len(runs) - finished} of them unfinished" if finished < len(runs) else ""
    return f"{_count(len(runs), 'run')} in {_count(len(groups), 'group')} of equal settings{rest}."


def _figures(groups: Sequence[RunGroup], outcomes: Sequence[str]) -> Iterator[Figure]:
    for x, over in (("round", "rounds"), ("bytes_up", "upload")):
        drawn, reasons = _traceable(groups, x, "accuracy")
        if drawn or any(has(record, "accuracy") for group in groups for run in group.runs for record in run.rounds):
            # without any curve, drawing raises the first of the reasons
            draw = _drawing(curves, drawn or groups, x, "accuracy")
            yield Figure(f"Accuracy over {over}", draw, reasons if drawn else ())
    if any(user_accuracies(run) for group in groups for run in group.runs):
        yield Figure("User accuracy over clients", _drawing(users, groups))
    costs = _to_target(outcomes)
    for cost in costs[:2]:
        yield Figure(capital(describe(cost).title), _drawing(bars, groups, cost))
    if "bytes_to_target" in costs and "accuracy" in outcomes and len(groups) > 1:
        yield Figure("Traffic against accuracy", _drawing(pareto, groups, "bytes_to_target", "accuracy"))
    if len(varied([group.runs[0] for group in groups])) > 1 and "accuracy" in outcomes:
        yield Figure("Accuracy over two settings", _drawing(heatmap, groups, "accuracy"))


def _drawing(draw: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: draw(*arguments)


def _traceable(groups: Sequence[RunGroup], x: str, y: str) -> tuple[list[RunGroup], list[str]]:
    """Return the groups that have a curve of y over x, and the reason for each of the others."""
    drawn, reasons = [], []
    for group in groups:
        try:
            trace(group, x, y)
        except ConfigError as error:
            reasons.append(f"not shown: {error}")
        else:
            drawn.append(group)
    return drawn, reasons


def _configuration(runs: Sequence[Run]) -> list[TableCells | Figure | Listing | str]:
    found: list[TableCells | Figure | Listing | str] = [
        Listing("common.toml: the settings that all runs share", common_toml(runs))
    ]
    differing = varied(runs)
    if differing:
        rows = [
            [key, "; ".join(DisplayNames().values(key, sorted_values(values)))] for key, values in differing.items()
        ]
        found.append(TableCells("Settings that differ", ["setting", "values"], rows))
    return found


def _environment(runs: Sequence[Run]) -> TableCells:
    keys = dict.fromkeys(key for run in runs for key in _surroundings(run) if key != "started")
    rows = [[key, ", ".join(dict.fromkeys(_written(_surroundings(run).get(key)) for run in runs))] for key in keys]
    started = sorted(str(_surroundings(run)["started"]) for run in runs if "started" in _surroundings(run))
    if started:
        rows.append(["started", started[0] if started[0] == started[-1] else f"{started[0]} to {started[-1]}"])
    return TableCells("Environment", ["", "value"], rows)


def _written(value: Any) -> str:
    """Return a value of the environment as text: `engine block, rows 64` for a table, `unknown` if absent."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {one}" for key, one in value.items())
    return "unknown" if value is None else str(value)


def _surroundings(run: Run) -> dict[str, Any]:
    try:
        return run.environment
    except FedgeError:  # a report does not depend on it
        return {}


def _commands(runs: Sequence[Run]) -> list[TableCells | Figure | Listing | str]:
    told = zip(commands(runs, "common.toml"), runs, strict=True)
    lines = [f"{command}  # {printable(str(run.path))}" for command, run in told]
    return [
        "Save the common settings above as common.toml. Each command trains one run again.",
        Listing("", "\n".join(lines)),
    ]


def _to_target(outcomes: Sequence[str]) -> list[str]:
    return [name for name in outcomes if is_to_target(name)]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
