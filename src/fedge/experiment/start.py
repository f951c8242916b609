"""Run one experiment, from configuration to records: start, resume, repeat."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedge import config as configuration
from fedge.config import Config
from fedge.core.effect import paths_without_effect
from fedge.core.errors import ConfigError, RunError, TrainingError, VoidError
from fedge.core.lent import borrow
from fedge.core.metric_declaration import MetricDeclaration
from fedge.core.parts import Sources
from fedge.core.progress import Progress
from fedge.data.python_data import PythonData
from fedge.engines.memory import keep_freed_memory
from fedge.experiment.changed_settings import changed_config, check_takes_effect, settings_without_rounds
from fedge.experiment.rounds import Record
from fedge.experiment.setup import Setup
from fedge.experiment.simulation import Simulation
from fedge.models.python_model import PythonModel
from fedge.runs.code import agree_on_code, forget_code
from fedge.runs.data_names import NO_NAMES, DataNames
from fedge.runs.directory import RunDirectory, change_repeats, create_repeats
from fedge.runs.files import CONFIG, check_resumable, seed_path
from fedge.runs.read import Run
from fedge.track.tracker import tracking

Steps = Generator[Record, bool | None, None]
"""Yields the record of each round; sending True makes a round the last."""


def start(config: Config, runs: Path, progress: Progress) -> Path:
    """Train in a new directory below `runs` and return it; with several seeds, each has a subdirectory."""
    path = unused(runs / config.name)
    with training(config.engine.matmul_precision):
        _exhaust(steps(path, config, progress))
    return path


def steps(path: Path, config: Config, progress: Progress) -> Steps:
    """Train in a new directory at `path`, round by round and seed by seed; see `TrainingRun.steps`.

    The caller must iterate inside `training`.
    """
    setup = Setup.of(config, config.first_seed)  # raises before anything is written
    if config.seeds is None:
        yield from _begin(setup, path, progress)
        return
    create_repeats(path, configuration.plain(config))
    for seed in config.seeds:
        single = _repeat(config, seed)
        own = replace(setup, config=single) if seed == setup.seed else Setup.of(single, seed)
        yield from _begin(own, seed_path(path, seed), progress, path)


def start_at(path: Path, config: Config, progress: Progress, group: Path) -> None:
    """Train one seed in a new directory at `path`, with the same user files as all runs of the folder `group`."""
    with training(config.engine.matmul_precision):
        _exhaust(_begin(Setup.of(config, config.first_seed), path, progress, group))


def resume(
    path: Path,
    changes: Sequence[str] | Mapping[str, Any],
    progress: Progress,
    accept_code: bool = False,
    group: Path | None = None,
) -> Path:
    """Resume a run, or all unfinished seeds of repeats, each from its last checkpoint.

    Changed settings are strings `a.b=v`, or values by path. Raises RunError if user files have changed since the run
    was made; with `accept_code`, the change is recorded instead. All runs of the folder `group` must have the same
    files.
    """
    if changes or Run(path).status != "complete":
        check_resumable(path)
    config = changed_config(path, changes)
    check_lent(path, config)
    with training(config.engine.matmul_precision):
        if config.seeds is not None and accept_code and group in (None, path):
            forget_code(path)
        _exhaust(resumed_steps(path, config, progress, lambda own: changed_config(own, changes), accept_code, group))
    return path


def resumed_steps(
    path: Path,
    config: Config,
    progress: Progress,
    config_of: Callable[[Path], Config] | None = None,
    accept_code: bool = False,
    group: Path | None = None,
) -> Steps:
    """Resume the run at a path, or all seeds of repeats, with these settings, round by round.

    `config_of` returns the settings of the run of one seed, given its path, if they differ from `config`.
    """
    if config.seeds is None:
        yield from _resume(config, path, progress, accept_code, group)
        return
    change_repeats(path, configuration.plain(config))
    for seed in config.seeds:
        own, single = seed_path(path, seed), _repeat(config, seed)
        if (own / CONFIG).exists():
            there = config_of(own) if config_of else single
            yield from _resume(there, own, progress, accept_code, group or path)
        else:
            yield from _begin(Setup.of(single, seed), own, progress, group or path)


def check_lent(path: Path, config: Config) -> None:
    """Raise a RunError if the run at a path has a model or data that only the Python program that started it has."""
    for what, part in (("model", config.model), ("data", config.data)):
        if isinstance(part, PythonModel | PythonData) and borrow(part.digest) is None:
            raise RunError(
                f"{path} was started from Python with {'a model' if what == 'model' else what}, {part.type!r}, that "
                "only that program has; continue it there with Experiment.run(resume=True)"
            )


def create_run(
    path: Path,
    config: Config,
    sources: Sources | None = None,
    metrics: Sequence[MetricDeclaration] = (),
    names: DataNames = NO_NAMES,
) -> RunDirectory:
    """Create the directory of a new run.

    `sources` are user files by path, `metrics` the run's own metrics, and `names` those of classes and clients.
    """
    without = paths_without_effect(config)
    return RunDirectory.create(
        path, configuration.plain(config), without_effect=without, sources=sources, metrics=metrics, names=names
    )


def _resume(config: Config, path: Path, progress: Progress, accept_code: bool, group: Path | None) -> Steps:
    found = Run(path)
    before, done = configuration.parse(found.config), found.last("round") or 0
    of_others = group is not None and settings_without_rounds(before, config, done)  # other seeds may still need them
    if found.status == "complete" and (before == config or of_others):
        progress.notice(f"{path}: is complete already")
        return
    with RunDirectory.open(path) as directory:
        trained = found.last("round") or 0
        if config.rounds < min(trained, found.config["rounds"]):
            raise ConfigError(f"rounds: expected at least the {trained} rounds already trained, got {config.rounds}")
        check_takes_effect(before, config, trained)
        setup = Setup.of(config, config.first_seed)
        directory.change_code(setup.sources, accept_code, trained)
        if group is not None:
            agree_on_code(group, setup.sources)
        yield from _train(setup, directory, progress)


def _begin(setup: Setup, path: Path, progress: Progress, group: Path | None = None) -> Steps:
    if group is not None:
        agree_on_code(group, setup.sources)
    names = DataNames.of(setup.clients)
    with create_run(path, setup.config, setup.sources, setup.metrics.declarations, names) as directory:
        yield from _train(setup, directory, progress)


def _train(setup: Setup, directory: RunDirectory, progress: Progress) -> Steps:
    config = setup.config
    try:
        with tracking(config.track, directory.path, progress) as tracked:
            simulation = Simulation(setup, directory, tracked)
            # only now: a configuration that cannot be trained must not be saved
            directory.change(configuration.plain(config), paths_without_effect(config), setup.metrics.declarations)
            yield from simulation.steps()
    except VoidError as error:
        edge = config.edge
        change = f"max_void_rounds={10 * edge.max_void_rounds}"
        if edge.deadline_s is not None:
            change = f"deadline_s={10 * edge.deadline_s:g}"
        if (Run(directory.path).last("round") or 0) >= config.rounds:
            change += f" --set rounds={2 * config.rounds}"
        raise VoidError(f"{error}\n{_kept(setup, directory, f'edge.{change}')}") from None
    except TrainingError as error:
        slower = f"algorithm.learning_rate={config.algorithm.learning_rate / 10:g}"
        raise TrainingError(f"{error}\n{_kept(setup, directory, slower)}") from None


def _kept(setup: Setup, directory: RunDirectory, change: str) -> str:
    """Return where the run is kept, and if possible the command that resumes it with a change."""
    if isinstance(setup.config.model, PythonModel) or isinstance(setup.config.data, PythonData):
        return f"The run is kept: {directory.path}"
    return f"The run is kept: fedge resume {directory.path} --set {change}"


def _exhaust(steps: Steps) -> None:
    for _ in steps:
        pass


def _repeat(config: Config, seed: int) -> Config:
    return configuration.parse(configuration.plain(config) | {"seed": seed, "seeds": None})


@contextmanager
def training(precision: str) -> Iterator[None]:
    """Set up this process for training inside this context."""
    keep_freed_memory()
    with one_thread(precision):
        yield


@contextmanager
def one_thread(precision: str) -> Iterator[None]:
    """Use one thread inside this context: results are reproducible, and small models are faster."""
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.set_float32_matmul_precision(before[1])


def unused(path: Path) -> Path:
    """Return the path, or the first of path-2, path-3, ... that does not exist."""
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found
