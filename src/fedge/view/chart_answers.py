"""One chart of selected runs, with its command and the number of runs that it shows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedge.core.printable import printable_command
from fedge.runs import Run
from fedge.view.page_charts import ChartQuery, append_rule, chart_spec
from fedge.view.run_entry import RunEntry
from fedge.view.selection import Parameters, RunSelection
from fedge.view.workspace import Workspace


def answer_chart(workspace: Workspace, kind: str, query: Parameters) -> dict[str, Any]:
    """Return the answer of `/api/chart/KIND`. Raises ConfigError if this chart cannot show these runs."""
    options = ChartQuery.parse(kind, query)
    loaded, left_out = workspace.compared(RunSelection.parse(query))
    runs = [run for _, run in loaded]
    spec = chart_spec(options, runs)
    return {
        "spec": spec,
        "append": append_rule(options, runs[0], spec) if len(runs) == 1 else None,
        "command": options.command(run_paths(workspace, loaded)),
        "n": len(runs),
        "of": len(runs) + len(left_out),
        "notes": [f"left out: {entry.path}: {reason}" for entry, reason in left_out],
    }


def show_commands(
    workspace: Workspace, loaded: Sequence[tuple[RunEntry, Run]], found: Mapping[str, Any]
) -> dict[str, str]:
    """Return the commands that print the tables of a comparison, by their names."""
    begun = [(entry, run) for entry, run in loaded if run.rounds] or loaded  # damaged runs are in no group
    judged = ["--outcome", str(found.get("outcome"))]
    options: dict[str, list[str]] = {
        "results": [],
        "settings": ["--settings", found.get("settings", "differ")],
        "pairs": ["--baseline", str(found.get("baseline")), *judged],
        "importance": judged,
        "correlations": [*judged, "--correlations"],
    }
    paths = run_paths(workspace, begun)
    return {name: printable_command(["fedge", "show", *paths, *words]) for name, words in options.items()}


def run_paths(workspace: Workspace, loaded: Sequence[tuple[RunEntry, Run]]) -> list[Path]:
    """Return the shortest list of paths that names these runs: a folder in place of all runs below it."""
    everything = workspace.index.entries
    chosen = {entry.key for entry, _ in loaded}
    if len(chosen) == len(everything):
        return [workspace.root]
    others = {folder for key, entry in everything.items() if key not in chosen for folder in _folders(entry.folder)}
    found: dict[Path, None] = {}
    for entry, run in loaded:
        whole = next((folder for folder in _folders(entry.folder) if folder not in others), None)
        found[workspace.root / os.fsdecode(whole) if whole else run.path] = None
    return list(found)


def _folders(path: bytes) -> Iterator[bytes]:
    """Return the parent folders of a relative path, the outermost first."""
    at = path.find(b"/")
    while at > 0:
        yield path[:at]
        at = path.find(b"/", at + 1)
