"""Find the runs that a report covers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from fedge.core.errors import FedgeError, RunError
from fedge.runs import Run, find_runs


def collect(paths: Sequence[Path], also: Callable[[Run], object] | None = None) -> tuple[list[Run], list[str]]:
    """Return the runs at and below these paths that can be read in full, and the reason for each run left out.

    Reads the rounds and clients of each run, and what `also` reads.
    """
    found = {run.path: run for path in paths for run in sorted(find_runs(path), key=_order)}
    runs, problems = [], []
    for run in found.values():
        if (problem := damage(run, lambda run: (run.rounds, run.clients, also and also(run)))) is None:
            runs.append(run)
        else:
            problems.append(f"left out: {problem}")
    if not runs:
        reasons = "".join(f"\n{problem}" for problem in problems)
        raise RunError(f"no runs in {', '.join(map(str, paths))}; start one with `fedge run FILE`{reasons}")
    return runs, problems


def damage(run: Run, read: Callable[[Run], object]) -> str | None:
    """Return why `read` fails on a run; None if it does not. `Run.problem` checks the end of the records only."""
    if run.problem is None:
        try:
            read(run)
        except FedgeError as error:
            return str(error)
    return run.problem


def _order(run: Run) -> list[list[tuple[int, str]]]:
    """Return a key that sorts by path, with numbers by value: run-2 before run-10."""
    return [
        [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", folder)]
        for folder in run.path.parts
    ]
