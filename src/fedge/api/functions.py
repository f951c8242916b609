"""`fedge.run`, `fedge.resume` and `fedge.sweep`: the commands of the same names, from Python."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedge import config as configuration
from fedge.api.experiment import Experiment
from fedge.api.run import Run, Runs
from fedge.api.stepping import watched
from fedge.config import Config
from fedge.core.anchor import anchor
from fedge.core.errors import FedgeError
from fedge.core.fields import describe
from fedge.core.lent import lending
from fedge.core.progress import Progress
from fedge.experiment import start as experiment
from fedge.report.run_display import Nothing, RunLines
from fedge.runs.files import holds_repeats, read_config, seed_path
from fedge.sweeps.board import Board, Line
from fedge.sweeps.execute import execute
from fedge.sweeps.plan import parse as parse_sweep
from fedge.sweeps.plan import work_out


def run(
    source: str | Path | Mapping[str, Any] | Config | Experiment,
    *,
    runs: str | Path = "runs",
    progress: bool | Progress | None = True,
    **changes: Any,
) -> Run | Runs:
    """Train an experiment given as a file, a dictionary, a Config or an Experiment; return one run per seed.

    `changes` are keyed by setting path: `fedge.run("first.toml", **{"algorithm.learning_rate": 0.05})`. Relative paths
    in a file are relative to the file, all others to the working directory.
    """
    settings, base, lent = _settings(source)
    with watched(progress) as listener, lending(lent):
        config = configuration.parse(configuration.change(settings, anchor(changes, Path())), base)
        path = experiment.start(config, Path(runs), listener)
    return _runs(path, lent)


def resume(
    path: str | Path, *, progress: bool | Progress | None = True, accept_code: bool = False, **changes: Any
) -> Run | Runs:
    """Resume a run, or all its seeds, from the last checkpoint, like the command `fedge resume`.

    `changes` are keyed by setting path, such as `rounds=500`. If a program passed the model or the data as an object,
    resume the run from that program with `Experiment.run(resume=True)`.
    """
    with watched(progress) as listener:
        done = experiment.resume(Path(path), changes, listener, accept_code)
    return _runs(done, {})


def sweep(
    source: str | Path | Mapping[str, Any] | Experiment,
    *,
    runs: str | Path = "runs",
    progress: bool = True,
    **changes: Any,
) -> Runs:
    """Train every combination of settings that have several values, like the command `fedge sweep`.

    Several values are given as a list:
    `fedge.sweep(experiment, name="rates", **{"algorithm.learning_rate": [0.01, 0.1]})`. Complete runs are not trained
    again. A failed run does not stop the others and is reported as a warning; if all fail, raise a FedgeError.
    """
    settings, base, lent = _settings(source)
    with lending(lent):
        planned = work_out(parse_sweep(configuration.change(settings, anchor(changes, Path())), base))
        outcome = execute(planned, Path(runs), SweepNotices(progress))
    for name, ended in outcome.failures.items():
        warnings.warn(f"failed: {name}: {ended.reason}", stacklevel=2)
    if not outcome.runs:
        reasons = "; ".join(f"{name}: {ended.reason}" for name, ended in outcome.failures.items())
        raise FedgeError(f"all runs of the sweep failed: {reasons}")
    return Runs(Run(path, lent) for path in outcome.runs)


class SweepNotices:
    """Prints a line for each run of a sweep that ends."""

    def __init__(self, progress: bool) -> None:
        self._screen = RunLines() if progress else Nothing()

    def notice(self, text: str) -> None:
        self._screen.notice(text)

    def ended(self, line: Line, board: Board) -> None:
        metric = describe(board.metric)
        value = "" if line.value is None else f", {metric.title} {metric.write(line.value)}"
        count = f"{len(board.lines('complete', 'failed'))}/{board.num_runs}"
        self._screen.notice(f"{count} {line.name}: {line.status}{value}")

    def show(self, board: Board) -> None:
        pass


def _settings(
    source: str | Path | Mapping[str, Any] | Config | Experiment,
) -> tuple[Mapping[str, Any], Path | None, Mapping[str, Any]]:
    """Return an experiment's settings, the base of their relative paths, and the objects that its runs need."""
    if isinstance(source, Experiment):
        return source.settings, None, source.lent
    if isinstance(source, Config):
        return configuration.plain(source), None, {}
    if isinstance(source, Mapping):
        return source, None, {}
    return configuration.load_raw(Path(source)), Path(source).parent, {}


def _runs(path: Path, lent: Mapping[str, Any]) -> Run | Runs:
    config, _ = read_config(path)
    if not holds_repeats(path, config):
        return Run(path, lent)
    return Runs(Run(seed_path(path, seed), lent) for seed in config["seeds"])
