"""The comparison of runs that `fedge run`, `fedge resume` and `fedge show` print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fedge.cli.listed_runs import entry
from fedge.cli.output import say, say_json
from fedge.core.errors import ConfigError
from fedge.report.analysis_tables import comparable, importance_table, paired_table, relation_tables
from fedge.report.correlation import correlate, levels
from fedge.report.groups import RunGroup, RunView, group_begun, group_runs, own_fields
from fedge.report.importance import measure_importance
from fedge.report.learning_curves import best_groups, rounds_and_upload, save
from fedge.report.pairs import find_baseline, pair_all
from fedge.report.run_results import check_outcome
from fedge.report.settings_table import WhichSettings, differing_settings, equal_settings, settings_table
from fedge.report.tables import RESULTS, TableCells, compare, records
from fedge.report.terminal_table import ResultTable, draw_cells
from fedge.runs import Run, find_runs


class Analyses(NamedTuple):
    """The analyses to print after the results: the options of `fedge show`."""

    baseline: str | None = None
    outcome: str | None = None
    settings: WhichSettings | None = None
    correlations: bool = False


def say_comparison(runs: Sequence[Run], format: Literal["text", "json"], wanted: Analyses | None = None) -> None:
    """Print a row for each group of runs that differ in the seed alone, and the requested analyses."""
    groups = group_runs(runs)
    rows = compare(groups)
    judged = next((name for name in RESULTS if any(row.result(name) for row in rows)), None)
    if wanted and wanted.outcome:
        check_outcome(runs, judged := wanted.outcome)
    if wanted and wanted.baseline:
        find_baseline(groups, wanted.baseline)  # an error before anything is printed
    if format == "json":
        said = {"comparison": records(rows), "runs": [entry(run) for run in runs]}
        say_json(said | (dict(_analysis_data(groups, judged, wanted)) if wanted else {}))
        return
    say(ResultTable(rows))
    for table in _analysis_tables(groups, judged, wanted) if wanted else ():
        say("", table if isinstance(table, str) else draw_cells(table))


def _analysis_tables(groups: Sequence[RunGroup], judged: str | None, wanted: Analyses) -> Iterator[TableCells | str]:
    runs = [run for group in groups for run in group.runs]
    if wanted.settings:
        yield settings_table(groups, wanted.settings)
    if judged is None:
        return
    if wanted.baseline:
        yield paired_table(groups, judged, wanted.baseline)
    found = _importance(runs, judged)
    if found and len(found["settings"]) > 1:  # importance ranks settings, so it needs at least two
        yield importance_table(runs, judged)
    if wanted.correlations:
        yield from relation_tables(runs, [judged], own_fields(runs))


def _analysis_data(groups: Sequence[RunGroup], judged: str | None, wanted: Analyses) -> Iterator[tuple[str, Any]]:
    """Yield the analyses as plain data."""
    runs = [run for group in groups for run in group.runs]
    if wanted.baseline:
        against = find_baseline(groups, wanted.baseline)
        pairs = pair_all(comparable(groups, judged), judged, against) if judged else []
        yield "pairs", [asdict(one) for one in pairs]
    yield "importance", _importance(runs, judged)
    if wanted.settings:
        shown = [*differing_settings(groups), *(equal_settings(groups) if wanted.settings == "all" else ())]
        labels = [group.label for group in groups]
        yield "settings", {one.setting: dict(zip(labels, one.values, strict=True)) for one in shown}
    if wanted.correlations:
        yield "correlations", [asdict(one) for one in correlate(runs, [judged])] if judged else []
        yield "levels", [asdict(one) for one in levels(runs, [judged])] if judged else []


def _importance(runs: Sequence[RunView], name: str | None) -> dict[str, Any] | None:
    """Return the importance of settings as plain data; None if nothing varies or the runs are too few."""
    try:
        return asdict(measure_importance(runs, name)) if name else None
    except ConfigError:
        return None


def say_trained(paths: Sequence[Path], format: Literal["text", "json"], quiet: bool) -> list[Run]:
    """Print the comparison of the runs that were trained, and their paths."""
    runs = [run for path in paths for run in find_runs(path)]
    if format == "json" or not quiet:
        say_comparison(runs, format)
    if format == "text" and not quiet:
        say("", *(f"run: {path}" for path in paths))
    return runs


def save_chart(runs: Sequence[Run], path: Path, y: str) -> None:
    """Save a chart of the metric y over rounds, beside y over upload."""
    groups, note = best_groups(group_begun(runs), "round", y)
    save(rounds_and_upload(groups, y, note), path)
