"""One experiment from configuration to records: build, train, evaluate, save, resume."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from fedge import config as configuration
from fedge.algorithms import mtfl, reduced
from fedge.config import Config
from fedge.core.algorithm import Algorithm, Build, Engine, Info, Kept, drive
from fedge.core.errors import ConfigError, DataError, TrainingError
from fedge.core.layout import nest, pick
from fedge.core.progress import Progress, Silent
from fedge.data.clients import Clients
from fedge.edge.ledger import Ledger
from fedge.engines import evaluate
from fedge.engines.block import Block
from fedge.engines.job import Job
from fedge.engines.kernels.assemble import assemble
from fedge.engines.loop import Loop
from fedge.engines.memory import keep_freed_memory
from fedge.engines.network import Network
from fedge.engines.wire import Wire
from fedge.models.flops import count_flops
from fedge.runs.directory import RunDirectory, change_repeats, create_repeats
from fedge.runs.files import CONFIG, seed_path
from fedge.runs.pace import Pace
from fedge.runs.read import Run

_SAME = ("name", "seed", "seeds", "data", "model", "personal")  # a run that changes these is another run
_COSTS_TO_TARGET = ("bytes_up", "bytes_down", "flops", "sim_seconds")


def run(
    source: str | Path | Mapping[str, Any] | Config,
    *,
    runs: str | Path = "runs",
    progress: Progress | None = None,
    **changes: Any,
) -> TrainedRun | list[TrainedRun]:
    """Train an experiment given as a file, a dictionary or a Config; several seeds give a list of runs.

    Changes go by their path: `fedge.run("first.toml", **{"algorithm.learning_rate": 0.05})`.
    """
    base = None
    if isinstance(source, Config):
        source = configuration.plain(source)
    elif not isinstance(source, Mapping):
        base = Path(source).parent
        source = configuration.load_raw(Path(source))
    config = configuration.parse(configuration.change(source, changes), base)
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
        state = pick("server", self.state())
        return setup.network.trained(setup.algorithm.model(state, setup.network.variables))


def start(config: Config, runs: Path, progress: Progress) -> Path:
    """Train in a new directory below `runs`; several seeds get a directory each inside it."""
    Setup.of(config, _seeds(config)[0])  # whatever is wrong is said before anything is written
    path = _unused(runs / config.name)
    if config.seeds is None:
        _begin(config, path, progress)
    else:
        create_repeats(path, configuration.plain(config))
        for seed in config.seeds:
            _begin(_repeat(config, seed), seed_path(path, seed), progress)
    return path


def resume(path: Path, changes: Sequence[str], progress: Progress) -> Path:
    """Go on with a run, or with all unfinished seeds of repeats, each from its last checkpoint."""
    config = _changed(path, changes)
    if config.seeds is None:
        _go_on(config, path, progress)
        return path
    change_repeats(path, configuration.plain(config))
    for seed in config.seeds:
        own = seed_path(path, seed)
        if (own / CONFIG).exists():
            _go_on(_changed(own, changes), own, progress)
        else:
            _begin(_repeat(config, seed), own, progress)
    return path


class Setup(NamedTuple):
    """What a configuration and a seed stand for."""

    clients: Clients
    network: Network
    algorithm: Algorithm
    flops_per_sample: int

    @staticmethod
    def of(config: Config, seed: int) -> Setup:
        clients = config.data.build(seed)
        if getattr(clients, "multilabel", False):
            raise DataError("data.name: samples with several labels can be loaded and shown, but not trained on yet")
        config.selection.number(len(clients.sizes))
        config.edge.check(len(clients.sizes))
        if clients.regression and config.target and config.target.metric != "loss":
            raise ConfigError(f"target.metric: a regression has no {config.target.metric}; its only metric is loss")
        network = Network(
            lambda: config.model.build(clients.shape, clients.num_outputs),
            seed,
            clients.regression,
            getattr(torch, config.engine.dtype),
        )
        build: Build = config.algorithm.build
        if config.personal:
            build = mtfl(build, config.personal.private)
        build = reduced(build, config.reduce.reducer())
        return Setup(clients, network, build(network.layout), count_flops(network.module, clients.shape))

    def job(self, config: Config, kept: Kept) -> Job:
        return Job(
            self.algorithm,
            self.network,
            self.clients,
            kept,
            config.algorithm.batch_size,
            self.flops_per_sample,
        )


class _Training:
    """One run in progress: its state after some number of rounds."""

    def __init__(self, config: Config, directory: RunDirectory, progress: Progress) -> None:
        self._config, self._directory, self._progress = config, directory, progress
        self._seed = _seeds(config)[0]
        setup = Setup.of(config, self._seed)
        self._algorithm, self._variables = setup.algorithm, setup.network.variables
        self._job = setup.job(config, directory.kept_store(setup.algorithm.keep(self._variables)))
        self._engine = self._choose_engine()
        self._test = setup.clients.pooled_test()
        self._ledger = Ledger()
        self._state = setup.algorithm.init(self._variables)
        self._round = 0
        self._seconds = 0.0
        self._metrics: dict[str, dict[str, float]] = {"last": {}, "best": {}}
        self._to_target: dict[str, float] | None = None
        if (restored := directory.restore()) is not None:
            self._restore(*restored)

    def run(self) -> None:
        """Train to the end."""
        config, directory, progress = self._config, self._directory, self._progress
        self._say_small_clients()
        progress.begin(str(directory.path), self._round + 1, config.rounds)
        pace = Pace(config.checkpoint.every, last=self._round)
        started, saving = time.perf_counter(), 0.0
        while self._ended_by() is None:
            record = self._one_round()
            directory.append(record)
            progress.round(record)
            now = time.perf_counter()
            if pace.due(self._round, now - started, saving):
                self._save()
                saving += time.perf_counter() - now
        self._save()
        directory.write_clients(self._ledger.clients())
        summary = self._summary()
        directory.write_summary(summary)
        progress.end(summary)

    def _one_round(self) -> dict[str, Any]:
        config, began = self._config, time.perf_counter()
        self._round += 1
        num_clients = len(self._job.clients.sizes)
        num_steps, num_epochs = config.algorithm.amount
        info = Info(
            round=self._round,
            rate=config.algorithm.learning_rate,
            num_steps=num_steps,
            num_epochs=num_epochs,
            num_clients=num_clients,
            seed=self._seed,
            cohort=config.selection.select(num_clients, self._seed, self._round),
        )
        (outcome,) = drive(self._engine, self._algorithm, [self._state], [info])
        self._state = outcome.state
        replies = list(outcome.replies)
        losses = np.concatenate([reply.losses for reply in replies])
        losses = losses[~np.isnan(losses)]
        record: dict[str, Any] = {
            "round": self._round,
            "cohort": len(info.cohort),
            "reported": len(replies[0].ids),
            "dropped": len(replies[0].missing),
            "learning_rate": info.rate,
        }
        if num_steps is not None:
            record["num_local_steps"] = num_steps
        if outcome.void:
            record["void"] = True
        if len(losses):
            record["train_loss"] = float(losses.mean())
        record |= self._ledger.charge(replies, config.edge.times(replies, self._seed))
        last = self._round == config.rounds or config.budget.spent(self._ledger.totals)
        if last or self._round % config.evaluate.every == 0:
            record |= self._evaluate(info)
        self._note(record)
        record["seconds"] = time.perf_counter() - began
        self._seconds += record["seconds"]
        return record

    def _evaluate(self, info: Info) -> dict[str, float]:
        options = self._config.evaluate
        variables = self._algorithm.model(self._state, self._variables)
        metrics = evaluate.central(self._job, variables, self._test)
        if not np.isfinite(metrics["loss"]):
            raise TrainingError(
                f"round {info.round}: the global model's loss on the test set is {metrics['loss']}. "
                "Training has diverged: lower algorithm.learning_rate"
            )
        if options.user_accuracy and not self._job.clients.regression:
            whose = info.cohort if options.users == "selected" else range(info.num_clients)
            accuracies = evaluate.users(self._job, variables, whose, info)
            if len(accuracies):
                metrics["user_accuracy"] = float(accuracies.mean())
                metrics["user_accuracy_std"] = float(accuracies.std())
                metrics["user_accuracy_min"] = float(accuracies.min())
        return metrics

    def _note(self, record: Mapping[str, Any]) -> None:
        """Remember the last and the best of each metric, and what the target cost when it was first reached."""
        last, best = self._metrics["last"], self._metrics["best"]
        for name in ("accuracy", "user_accuracy", "loss"):
            if name in record:
                last[name] = record[name]
                better = min if name == "loss" else max
                best[name] = better(best.get(name, record[name]), record[name])
        target = self._config.target
        if target and self._to_target is None and target.reached(record):
            totals = self._ledger.totals
            self._to_target = {"rounds": self._round, **{name: totals[name] for name in _COSTS_TO_TARGET}}

    def _ended_by(self) -> str | None:
        target = self._config.target
        if target and target.stop and self._to_target is not None:
            return "target"
        return self._config.budget.spent(self._ledger.totals) or (
            "rounds" if self._round >= self._config.rounds else None
        )

    def _summary(self) -> dict[str, Any]:
        reached = self._to_target or {}
        return {
            "rounds": self._round,
            "ended_by": self._ended_by(),
            **self._metrics["last"],
            **{f"best_{name}": value for name, value in self._metrics["best"].items()},
            **self._ledger.totals,
            **{f"{name}_to_target": reached.get(name) for name in ("rounds", *_COSTS_TO_TARGET)},
            "seconds": self._seconds,
        }

    def _save(self) -> None:
        tensors = nest("server", self._state) | nest("ledger", self._ledger.state())
        meta = {
            "round": self._round,
            "totals": self._ledger.totals,
            "metrics": self._metrics,
            "seconds": self._seconds,
        }
        self._directory.save(tensors, meta)

    def _restore(self, tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> None:
        self._state = pick("server", tensors)
        self._ledger.restore(meta["totals"], pick("ledger", tensors))
        self._round, self._seconds = meta["round"], meta["seconds"]
        self._metrics = meta["metrics"]
        self._to_target = self._find_target(Run(self._directory.path).rounds)

    def _find_target(self, records: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
        """What the target cost, from the records: it may be another one than when they were written."""
        spent = dict.fromkeys(_COSTS_TO_TARGET, 0)
        for record in records:
            spent = {name: before + record[name] for name, before in spent.items()}
            if self._config.target and self._config.target.reached(record):
                return {"rounds": record["round"], **spent}
        return None

    def _choose_engine(self) -> Engine:
        name, job = self._config.engine.name, self._job
        if name == "wire":
            return Wire(job, lambda: Setup.of(self._config, self._seed).job(self._config, job.kept))
        if name == "loop":
            return Loop(job)
        kernels = assemble(job.network)
        if isinstance(kernels, str):
            self._progress.notice(f"engine: clients run one at a time (loop), because {kernels}")
            return Loop(job)
        return Block(job, kernels)

    def _say_small_clients(self) -> None:
        size = self._config.algorithm.batch_size
        small = int(np.count_nonzero(self._job.clients.sizes < size))
        if small:
            self._progress.notice(
                f"data: {small} clients have fewer samples than a batch of {size} and use all they have"
            )


def _begin(config: Config, path: Path, progress: Progress) -> None:
    with RunDirectory.create(path, configuration.plain(config)) as directory:
        _train(config, directory, progress)


def _go_on(config: Config, path: Path, progress: Progress) -> None:
    found, plain = Run(path), configuration.plain(config)
    if found.status == "complete" and found.config == plain:
        progress.notice(f"{path}: is complete already")
        return
    with RunDirectory.open(path) as directory:
        trained = found.last("round") or 0
        if config.rounds < min(trained, found.config["rounds"]):
            raise ConfigError(f"rounds: expected at least the {trained} that the run has already, got {config.rounds}")
        _train(config, directory, progress)


def _train(config: Config, directory: RunDirectory, progress: Progress) -> None:
    try:
        with _one_thread():
            training = _Training(config, directory, progress)
            directory.change(configuration.plain(config))  # only now: what cannot be trained changes nothing
            training.run()
    except TrainingError as error:
        slower = f"--set algorithm.learning_rate={config.algorithm.learning_rate / 10:g}"
        raise TrainingError(f"{error}\nThe run is kept: fedge resume {directory.path} {slower}") from None


def _changed(path: Path, changes: Sequence[str]) -> Config:
    """The configuration of a run with changes on top; a ConfigError for those that would make it another run."""
    before = configuration.parse(Run(path).config)
    given = configuration.change(configuration.plain(before), configuration.assignments(changes))
    config = configuration.parse(given)
    fixed = [name for name in _SAME if getattr(before, name) != getattr(config, name)]
    if type(before.algorithm) is not type(config.algorithm):
        fixed.append("algorithm.name")
    if before.engine.dtype != config.engine.dtype:
        fixed.append("engine.dtype")
    if fixed:
        raise ConfigError(*(f"{name}: cannot change when a run is resumed; start a new run instead" for name in fixed))
    return config


def _repeat(config: Config, seed: int) -> Config:
    return configuration.parse(configuration.plain(config) | {"seed": seed, "seeds": None})


@contextmanager
def _one_thread() -> Iterator[None]:
    """Results are promised for one thread; several in one process also slow down small models."""
    keep_freed_memory()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
