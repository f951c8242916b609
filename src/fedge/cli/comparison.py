"""The comparison of runs that `fedge run`, `fedge resume` and `fedge show` print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from fedge.cli.entries import entry
from fedge.cli.output import say, say_json
from fedge.core.errors import ConfigError
from fedge.report.analysis_tables import comparable, importance_table, paired_table
from fedge.report.groups import group_begun, group_runs
from fedge.report.importance import measure_importance
from fedge.report.learning_curves import best_groups, curves, save, side_by_side
from fedge.report.pairs import find_baseline, pair_all
from fedge.report.tables import RESULTS, compare, records
from fedge.report.terminal_table import ResultTable, draw_cells
from fedge.runs import Run, find_runs


def say_comparison(
    runs: Sequence[Run], format: Literal["text", "json"], baseline: str | None = None, analysed: bool = False
) -> None:
    """Print a row for each group of runs that differ in the seed alone.

    With a baseline also the differences from it seed by seed, and if `analysed` the importance of settings.
    """
    groups = group_runs(runs)
    rows = compare(groups)
    judged = next((name for name in RESULTS if any(row.result(name) for row in rows)), None)
    against = find_baseline(groups, baseline) if baseline else None
    if format == "json":
        pairs = pair_all(comparable(groups, judged), judged, against) if against and judged else []
        said = {"comparison": records(rows), "runs": [entry(run) for run in runs]}
        said |= {"pairs": [asdict(one) for one in pairs]} if against else {}
        say_json(said | ({"importance": _importance(runs, judged)} if analysed else {}))
        return
    say(ResultTable(rows))
    tables = [paired_table(groups, judged, baseline)] if against and judged else []
    found = _importance(runs, judged) if analysed else None
    if judged and found and len(found["settings"]) > 1:  # of a single setting there is nothing to rank
        tables.append(importance_table(runs, judged))
    for table in tables:
        say("", table if isinstance(table, str) else draw_cells(table))


def _importance(runs: Sequence[Run], name: str | None) -> dict[str, Any] | None:
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
    """Save the metric y over rounds beside the same over upload."""
    groups, note = best_groups(group_begun(runs), "round", y)
    save(side_by_side([curves(groups, x, y, note=note) for x in ("round", "bytes_up")]), path)
