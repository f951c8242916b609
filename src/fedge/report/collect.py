"""The runs that a report is about."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from fedge.core.errors import FedgeError, RunError
from fedge.runs import Run, find_runs
from fedge.runs.files import ROUNDS


def collect(paths: Sequence[Path], also: Callable[[Run], object] | None = None) -> tuple[list[Run], list[str]]:
    """The runs at and below these paths that can be read in full, and of all others why they are left out.

    What is read of each run is its rounds and clients, and what `also` reads.
    """
    found = {run.path: run for path in paths for run in sorted(find_runs(path), key=_order)}
    runs, problems = [], []
    for run in found.values():
        if (problem := _problem(run, also)) is None:
            runs.append(run)
        else:
            problems.append(f"left out: {problem}")
    if not runs:
        said = "".join(f"\n{problem}" for problem in problems)
        raise RunError(f"no runs in {', '.join(map(str, paths))}; start one with `fedge run FILE`{said}")
    return runs, problems


def _order(run: Run) -> list[list[tuple[int, str]]]:
    """By path, folder by folder, with numbers by their size: run-2 before run-10."""
    return [
        [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", folder)]
        for folder in run.path.parts
    ]


def _problem(run: Run, also: Callable[[Run], object] | None) -> str | None:
    if run.problem is None:
        try:
            if any("round" not in record for record in run.rounds):
                return f"{run.path / ROUNDS} is damaged: a record has no round; put back a copy of it"
            _ = run.clients, also and also(run)
        except FedgeError as error:  # damage that a look at the end of the records does not show
            return str(error)
    return run.problem
