"""Several runs side by side: what `fedge run`, `fedge resume` and `fedge show` end with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from fedge.cli.entries import entry
from fedge.cli.output import say, say_json
from fedge.report.groups import group_begun, group_runs
from fedge.report.learning_curves import curves, save, side_by_side
from fedge.report.tables import compare, records
from fedge.report.terminal_table import ResultTable
from fedge.runs import Run, find_runs


def say_comparison(runs: Sequence[Run], format: Literal["text", "json"]) -> None:
    """A row for each experiment, over its seeds."""
    rows = compare(group_runs(runs))
    if format == "json":
        say_json({"comparison": records(rows), "runs": [entry(run) for run in runs]})
    else:
        say(ResultTable(rows))


def say_trained(paths: Sequence[Path], format: Literal["text", "json"], quiet: bool) -> list[Run]:
    """What training ends with: the runs at these paths compared, and where they are."""
    runs = [run for path in paths for run in find_runs(path)]
    if format == "json" or not quiet:
        say_comparison(runs, format)
    if format == "text" and not quiet:
        say("", *(f"run: {path}" for path in paths))
    return runs


def save_chart(runs: Sequence[Run], path: Path, y: str) -> None:
    """The metric y over rounds beside the same over upload."""
    groups = group_begun(runs)
    save(side_by_side([curves(groups, "round", y), curves(groups, "bytes_up", y)]), path)
