"""One experiment from configuration to records: start, resume, repeat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedge import config as configuration
from fedge.config import Config
from fedge.core.anchor import anchor
from fedge.core.effect import paths_without_effect
from fedge.core.errors import ConfigError, TrainingError, VoidError
from fedge.core.layout import pick
from fedge.core.parts import Sources
from fedge.core.progress import Progress, Silent
from fedge.engines.memory import keep_freed_memory
from fedge.experiment.changed_settings import changed_config, check_takes_effect, settings_without_rounds
from fedge.experiment.setup import Setup
from fedge.experiment.simulation import Simulation
from fedge.runs.code import agree_on_code, check_code, forget_code, hash_code
from fedge.runs.directory import RunDirectory, change_repeats, create_repeats
from fedge.runs.files import CONFIG, check_resumable, seed_path
from fedge.runs.read import Run


def run(
    source: str | Path | Mapping[str, Any] | Config,
    *,
    runs: str | Path = "runs",
    progress: Progress | None = None,
    **changes: Any,
) -> TrainedRun | list[TrainedRun]:
    """Train an experiment given as a file, a dictionary or a Config; several seeds give a list of runs.

    Changes go by their path: `fedge.run("first.toml", **{"algorithm.learning_rate": 0.05})`. Relative paths in a file
    start at the file, all others at the working directory.
    """
    base = None
    if isinstance(source, Config):
        source = configuration.plain(source)
    elif not isinstance(source, Mapping):
        base = Path(source).parent
        source = configuration.load_raw(Path(source))
    config = configuration.parse(configuration.change(source, anchor(changes, Path())), base)
    path = start(config, Path(runs), progress or Silent())
    if config.seeds is None:
        return TrainedRun(path)
    return [TrainedRun(seed_path(path, seed)) for seed in config.seeds]


class TrainedRun(Run):
    """A run whose model can be used."""

    @cached_property
    def model(self) -> nn.Module:
        """The network with the trained weights, in evaluation mode."""
        config = configuration.parse(self.config)
        setup = Setup.of(config, _seeds(config)[0])
        hierarchy = setup.hierarchy()
        hierarchy.restore(pick("server", self.state()))
        if self.code:
            check_code(self.path, self.code, hash_code(setup.sources))
        return setup.network.trained(setup.algorithm.model(hierarchy.merged(), setup.network.variables))


def start(config: Config, runs: Path, progress: Progress) -> Path:
    """Train in a new directory below `runs`; several seeds get a directory each inside it."""
    with _training(config.engine.matmul_precision):
        setup = Setup.of(config, _seeds(config)[0])  # reports whatever is wrong before anything is written
        path = _unused(runs / config.name)
        if config.seeds is None:
            _begin(setup, path, progress)
            return path
        create_repeats(path, configuration.plain(config))
        for seed in config.seeds:
            single = _repeat(config, seed)
            own = replace(setup, config=single) if seed == setup.seed else Setup.of(single, seed)
            _begin(own, seed_path(path, seed), progress, path)
    return path


def start_at(path: Path, config: Config, progress: Progress, group: Path) -> None:
    """Train one seed in a new directory at `path`, with the same users' files as all runs of the folder `group`."""
    with _training(config.engine.matmul_precision):
        _begin(Setup.of(config, _seeds(config)[0]), path, progress, group)


def resume(
    path: Path,
    changes: Sequence[str] | Mapping[str, Any],
    progress: Progress,
    accept_code: bool = False,
    group: Path | None = None,
) -> Path:
    """Resume a run, or all unfinished seeds of repeats, each from its last checkpoint.

    Changes of settings are texts `a.b=v`, or values by their path. If users' files are not those that the run was made
    with, this is a RunError, or recorded with `accept_code`. All runs of the folder `group` must have the same.
    """
    if changes or Run(path).status != "complete":
        check_resumable(path)
    config = changed_config(path, changes)
    if config.seeds is None:
        _go_on(config, path, progress, accept_code, group)
        return path
    group = group or path
    if accept_code and group == path:
        forget_code(path)
    change_repeats(path, configuration.plain(config))
    for seed in config.seeds:
        own = seed_path(path, seed)
        if (own / CONFIG).exists():
            _go_on(changed_config(own, changes), own, progress, accept_code, group)
        else:
            start_at(own, _repeat(config, seed), progress, group)
    return path


def create_run(path: Path, config: Config, sources: Sources | None = None) -> RunDirectory:
    """Return the directory of a new run of a configuration, with users' files by their path."""
    without = paths_without_effect(config)
    return RunDirectory.create(path, configuration.plain(config), without_effect=without, sources=sources)


def _begin(setup: Setup, path: Path, progress: Progress, group: Path | None = None) -> None:
    if group is not None:
        agree_on_code(group, setup.sources)
    with create_run(path, setup.config, setup.sources) as directory:
        _train(setup, directory, progress)


def _go_on(config: Config, path: Path, progress: Progress, accept_code: bool, group: Path | None) -> None:
    found = Run(path)
    before, done = configuration.parse(found.config), found.last("round") or 0
    of_others = group is not None and settings_without_rounds(before, config, done)  # other seeds may still use them
    if found.status == "complete" and (before == config or of_others):
        progress.notice(f"{path}: is complete already")
        return
    with RunDirectory.open(path) as directory:
        trained = found.last("round") or 0
        if config.rounds < min(trained, found.config["rounds"]):
            raise ConfigError(f"rounds: expected at least the {trained} that the run has already, got {config.rounds}")
        check_takes_effect(before, config, trained)
        with _training(config.engine.matmul_precision):
            setup = Setup.of(config, _seeds(config)[0])
            directory.change_code(setup.sources, accept_code, trained)
            if group is not None:
                agree_on_code(group, setup.sources)
            _train(setup, directory, progress)


def _train(setup: Setup, directory: RunDirectory, progress: Progress) -> None:
    config = setup.config
    try:
        simulation = Simulation(setup, directory, progress)
        # only now: what cannot be trained changes nothing
        directory.change(configuration.plain(config), paths_without_effect(config))
        simulation.run()
    except VoidError as error:
        edge = config.edge
        change = f"max_void_rounds={10 * edge.max_void_rounds}"
        if edge.deadline_s is not None:
            change = f"deadline_s={10 * edge.deadline_s:g}"
        if (Run(directory.path).last("round") or 0) >= config.rounds:
            change += f" --set rounds={2 * config.rounds}"
        raise VoidError(f"{error}\nThe run is kept: fedge resume {directory.path} --set edge.{change}") from None
    except TrainingError as error:
        slower = f"--set algorithm.learning_rate={config.algorithm.learning_rate / 10:g}"
        raise TrainingError(f"{error}\nThe run is kept: fedge resume {directory.path} {slower}") from None


def _repeat(config: Config, seed: int) -> Config:
    return configuration.parse(configuration.plain(config) | {"seed": seed, "seeds": None})


@contextmanager
def _training(precision: str) -> Iterator[None]:
    keep_freed_memory()
    with one_thread(precision):
        yield


@contextmanager
def one_thread(precision: str) -> Iterator[None]:
    """Results are promised for one thread; several in one process also slow down small models."""
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.set_float32_matmul_precision(before[1])


def _seeds(config: Config) -> list[int]:
    """The seeds of a configuration: its own, or those of its repeats."""
    return config.seeds or [] if config.seed is None else [config.seed]


def _unused(path: Path) -> Path:
    """The path itself, or else the first of path-2, path-3, ... where nothing is."""
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found
