"""What a report says, before it is written as a page, as Markdown or as LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from fedge.core.errors import ConfigError, FedgeError
from fedge.core.fields import OwnFields, describe, fitting, is_to_target, measured_on, titled
from fedge.core.printable import printable
from fedge.report.bars import bars
from fedge.report.correlation import correlate, levels
from fedge.report.groups import RunGroup, describe_in, group_runs, has, own_fields, regroup, varied
from fedge.report.heatmap import heatmap
from fedge.report.learning_curves import curves
from fedge.report.pairs import Pairing, pair_all
from fedge.report.pareto_chart import pareto
from fedge.report.reproduction import commands, common_toml
from fedge.report.run_results import outcome
from fedge.report.series import trace
from fedge.report.statistics import LEVEL
from fedge.report.tables import RESULTS, TableCells, compare, grid, write
from fedge.report.user_accuracy import user_accuracies, users
from fedge.runs import Run

_MAX_LINES = 8
"""Curves of more settings than this are drawn by one setting instead: there are no more colours."""

_OUTCOMES = (*RESULTS, "mean_weight_divergence", "median_sim_seconds")


class Figure(NamedTuple):
    """A chart with a name, drawn when it is asked for; notes tell what it leaves out, and why."""

    title: str
    draw: Callable[[], Any]
    notes: Sequence[str] = ()


class Listing(NamedTuple):
    """Text to be copied as it is."""

    title: str
    text: str


class Section(NamedTuple):
    """A heading and what stands below it."""

    title: str
    parts: Sequence[TableCells | Figure | Listing | str]


class Document(NamedTuple):
    """A report."""

    title: str
    sections: Sequence[Section]


def describe_runs(runs: Sequence[Run], problems: Sequence[str] = (), title: str = "Fedge report") -> Document:
    """All that a report says about these runs; problems say what was left out of it."""
    groups = group_runs(runs)
    finished = [run for run in runs if run.summary is not None]
    own = own_fields(runs)
    names = (*_OUTCOMES, *(name for name in own if measured_on(name) == "test set"))
    outcomes = [name for name in names if any(outcome(run, name) is not None for run in finished)]
    sections = [
        Section("Results", [_counted(runs, groups), grid(compare(groups)), *_figures(groups, outcomes)]),
        Section("Paired comparison", [_pairings(groups, name) for name in outcomes[:1] + _to_target(outcomes)[:1]])
        if len(groups) > 1
        else None,
        Section("Settings and results", list(_relations(finished, outcomes, own))),
        Section("Configuration", _configuration(runs)),
        Section("Environment", [_environment(runs)]),
        Section("Reproduce", _commands(runs)),
        Section("Left out", list(problems)),
    ]
    return Document(title, [section for section in sections if section and section.parts])


def _counted(runs: Sequence[Run], groups: Sequence[RunGroup]) -> str:
    finished = sum(run.summary is not None for run in runs)
    rest = f", {len(runs) - finished} of them unfinished" if finished < len(runs) else ""
    return f"{len(runs)} runs of {len(groups)} settings{rest}."


def _figures(groups: Sequence[RunGroup], outcomes: Sequence[str]) -> Iterator[Figure]:
    lines, by = _lines(groups)
    said = f", by {by}" if by else ""
    for x, over in (("round", "rounds"), ("bytes_up", "upload")):
        drawn, reasons = _traceable(lines, x, "accuracy")
        if drawn or any(has(record, "accuracy") for group in lines for run in group.runs for record in run.rounds):
            # without a single curve, drawing raises the first of the reasons
            draw = _drawing(curves, drawn or lines, x, "accuracy")
            yield Figure(f"Accuracy over {over}{said}", draw, reasons if drawn else ())
    if any(user_accuracies(run) for group in lines for run in group.runs):
        yield Figure(f"User accuracy over clients{said}", _drawing(users, lines))
    costs = _to_target(outcomes)
    for cost in costs[:2]:
        yield Figure(_capital(describe(cost).title), _drawing(bars, groups, cost))
    if "bytes_to_target" in costs and "accuracy" in outcomes and len(groups) > 1:
        yield Figure("Traffic against accuracy", _drawing(pareto, groups, "bytes_to_target", "accuracy"))
    if len(varied([group.runs[0] for group in groups])) > 1 and "accuracy" in outcomes:
        yield Figure("Accuracy over two settings", _drawing(heatmap, groups, "accuracy", _two(groups)))


def _drawing(draw: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: draw(*arguments)


def _lines(groups: Sequence[RunGroup]) -> tuple[Sequence[RunGroup], str | None]:
    """The groups that curves are drawn of, and the setting they were merged by."""
    if len(groups) <= _MAX_LINES:
        return groups, None
    for key in varied([group.runs[0] for group in groups]):
        merged = regroup(groups, [key])
        if len(merged) <= _MAX_LINES:
            return merged, key
    return groups[:_MAX_LINES], f"their order, the first {_MAX_LINES}"


def _two(groups: Sequence[RunGroup]) -> tuple[str, str]:
    """Two settings for a heat map: numbers rather than names, as numbers have an order."""
    found = varied([group.runs[0] for group in groups])
    numbers = [key for key, values in found.items() if all(isinstance(value, int | float) for value in values)]
    first, second, *_ = [*numbers, *(key for key in found if key not in numbers)]
    return first, second


def _traceable(groups: Sequence[RunGroup], x: str, y: str) -> tuple[list[RunGroup], list[str]]:
    """The groups that have a curve of y over x, and of each other group why it has none."""
    drawn, reasons = [], []
    for group in groups:
        try:
            trace(group, x, y)
        except ConfigError as error:
            reasons.append(f"not shown: {error}")
        else:
            drawn.append(group)
    return drawn, reasons


def _pairings(groups: Sequence[RunGroup], name: str) -> TableCells | str:
    alike = _comparable(groups, name)
    found = pair_all(alike, name)
    quantity = describe_in(groups, name)
    if not found:
        return f"{_capital(quantity.title)}: no two settings share a seed, so none can be compared pair by pair."
    unit = fitting(quantity.units, max(abs(p.difference.mean) if p.difference else 0.0 for p in found))
    rows = [
        [
            pairing.first,
            str(pairing.pairs),
            write(pairing.difference, unit) if pairing.difference else "–",
            f"{pairing.wins}:{pairing.losses}",
            pairing.verdict,
        ]
        for pairing in found
    ]
    head = ["setting", "pairs", f"difference in {titled(quantity.title, unit)}", "wins", "verdict"]
    notes = _pairing_notes(found)
    if len(alike) < len(groups):
        why = "another target or none" if is_to_target(name) else f"no {quantity.title}"
        others = ", ".join(group.label for group in groups if group not in alike)
        notes.append(f"left out, as they have {why}: {others}")
    return TableCells(f"{_capital(quantity.title)} against {alike[0].label}", head, rows, notes)


def _comparable(groups: Sequence[RunGroup], name: str) -> list[RunGroup]:
    """The groups that have this result, or of a cost to target those with the target of the first that has one."""
    if is_to_target(name):
        target = next((group.target for group in groups if group.target), None)
        return [group for group in groups if target and group.target == target]
    return [group for group in groups if any(outcome(run, name) is not None for run in group.runs)]


def _pairing_notes(found: Sequence[Pairing]) -> list[str]:
    notes = [f"better, worse: the {LEVEL:.0%} confidence interval of the mean difference over seeds leaves out 0"]
    if any(pairing.by == "wins" for pairing in found):
        notes.append(
            "where a seed did not reach the target the difference is of the other pairs only, and the verdict is "
            f"that of a sign test over all pairs (p <= {1 - LEVEL:.2g})"
        )
    if len(found) > 1:
        notes.append(f"of {len(found)} comparisons some may differ by chance: no correction is made for their number")
    return notes


def _relations(runs: Sequence[Run], outcomes: Sequence[str], own: OwnFields) -> Iterator[TableCells]:
    correlations = correlate(runs, outcomes) if runs else []
    if correlations:
        known = dict.fromkeys(found.setting for found in correlations)
        rows = [
            [
                setting,
                *(_coefficient(found.coefficient, found.count) for found in correlations if found.setting == setting),
            ]
            for setting in known
        ]
        notes = ["Pearson's coefficient, with the number of runs; a cost to target is of the runs that reached it"]
        yield TableCells("Correlation", ["setting", *(describe(name, own).title for name in outcomes)], rows, notes)
    found = levels(runs, outcomes) if runs else []
    units = {
        name: fitting(
            describe(name, own).units,
            max(
                (one.result.estimate.mean for one in found if one.outcome == name and one.result.estimate), default=0.0
            ),
        )
        for name in outcomes
    }
    for setting in dict.fromkeys(one.setting for one in found):
        alike = [one for one in found if one.setting == setting]
        rows = [
            [
                value,
                str(max(one.result.count for one in alike if one.value == value)),
                *(
                    (write(one.result.estimate, units[one.outcome]) if one.result.estimate else "–")
                    + _reached(one.outcome, one.result.reached, one.result.count)
                    for one in alike
                    if one.value == value
                ),
            ]
            for value in dict.fromkeys(one.value for one in alike)
        ]
        head = [setting, "runs", *(titled(describe(name, own).title, units[name]) for name in outcomes)]
        notes = ["mean over all runs with that value, whatever their other settings; ± only where seeds alone differ"]
        yield TableCells(f"By {setting}", head, rows, notes)


def _coefficient(value: float | None, count: int) -> str:
    return f"– ({count})" if value is None else f"{value:+.2f} ({count})".replace("-", "−")


def _reached(name: str, reached: int, count: int) -> str:
    return f" ({reached}/{count} reached)" if is_to_target(name) and 0 < reached < count else ""


def _configuration(runs: Sequence[Run]) -> list[TableCells | Figure | Listing | str]:
    found: list[TableCells | Figure | Listing | str] = [Listing("common.toml: what all runs share", common_toml(runs))]
    differing = varied(runs)
    if differing:
        rows = [
            [key, ", ".join(dict.fromkeys("not set" if value is None else str(value) for value in values))]
            for key, values in differing.items()
        ]
        found.append(TableCells("What differs", ["setting", "values"], rows))
    return found


def _environment(runs: Sequence[Run]) -> TableCells:
    keys = dict.fromkeys(key for run in runs for key in _surroundings(run) if key != "started")
    rows = [
        [key, ", ".join(dict.fromkeys(str(_surroundings(run).get(key, "unknown")) for run in runs))] for key in keys
    ]
    started = sorted(str(_surroundings(run)["started"]) for run in runs if "started" in _surroundings(run))
    if started:
        rows.append(["started", started[0] if started[0] == started[-1] else f"{started[0]} to {started[-1]}"])
    return TableCells("Environment", ["", "of the runs"], rows)


def _surroundings(run: Run) -> dict[str, Any]:
    try:
        return run.environment
    except FedgeError:  # the runs are what is reported on; where they ran is then not known
        return {}


def _commands(runs: Sequence[Run]) -> list[TableCells | Figure | Listing | str]:
    told = zip(commands(runs, "common.toml"), runs, strict=True)
    lines = [f"{command}  # {printable(str(run.path))}" for command, run in told]
    return [
        "Save the common settings above as common.toml; each line trains one run again.",
        Listing("", "\n".join(lines)),
    ]


def _to_target(outcomes: Sequence[str]) -> list[str]:
    return [name for name in outcomes if is_to_target(name)]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
