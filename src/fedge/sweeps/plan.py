"""From the points of a grid to run directories, and which runs are already done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from fedge import config as configuration
from fedge.config import Config
from fedge.core.anchor import anchor
from fedge.core.errors import ConfigError, RunError, nearest
from fedge.core.fields import METRICS, NO_OWN_FIELDS, VALIDATION, OwnFields, describe, measured_on
from fedge.core.metric_declaration import declared_fields
from fedge.core.schema import read
from fedge.core.storage import write_atomic, writing
from fedge.metrics import load_metrics
from fedge.runs import Run
from fedge.runs.files import CONFIG, decode, encode_pretty, read_bytes, seed_path
from fedge.sweeps.axes import Point, find_points, seeds_of
from fedge.sweeps.names import name_points
from fedge.sweeps.options import SweepOptions

FORMAT = 1
PLAN = "sweep.json"


class Sweep(NamedTuple):
    """A sweep as described by an experiment file."""

    name: str
    settings: dict[str, Any]  # as in the file, with absolute paths, without the [sweep] table
    base: Path  # relative paths in the file are relative to it
    options: SweepOptions
    points: list[Point]

    @property
    def num_runs(self) -> int:
        seeds = self.settings.get("seeds")
        return len(self.points) * (len(seeds) if isinstance(seeds, list) else 1)


class PlannedRun(NamedTuple):
    """One run of a sweep, with its complete configuration."""

    name: str
    path: Path
    config: dict[str, Any]
    sweep: Path  # the folder of the sweep
    accept_code: bool = False  # user files may have changed

    @property
    def rounds(self) -> int:
        return int(self.config["rounds"])

    def until(self, rounds: int) -> PlannedRun:
        """Return the same run with this many rounds."""
        return self._replace(config={**self.config, "rounds": rounds})


class Trial(NamedTuple):
    """One point: a run, or one run per seed. `config` is None if its settings are invalid."""

    name: str
    values: Point
    config: Config | None
    problems: Sequence[str] = ()

    def runs(self, folder: Path) -> list[PlannedRun]:
        """Return the runs of this point, below the folder of the sweep."""
        if self.config is None:
            return []
        path, plain = folder / self.name, configuration.plain(self.config)
        if self.config.seeds is None:
            return [PlannedRun(self.name, path, plain, folder)]
        return [
            PlannedRun(f"{self.name}/seed-{seed}", seed_path(path, seed), plain | {"seed": seed, "seeds": None}, folder)
            for seed in self.config.seeds
        ]


class SweepPlan(NamedTuple):
    """A sweep with the configuration of every point."""

    sweep: Sweep
    trials: list[Trial]
    metric: str
    own: OwnFields = NO_OWN_FIELDS  # fields of the runs' own metrics


def load(path: Path, changes: Sequence[str] = ()) -> Sweep:
    """Return the sweep in a TOML file, with changes `a.b=v` applied. Raises ConfigError."""
    given = anchor(configuration.assignments(changes), Path())
    raw = configuration.change(configuration.load_raw(path), given)
    return parse(raw, path.parent)


def parse(raw: Mapping[str, Any], base: Path | None = None) -> Sweep:
    """Return the sweep in a plain dictionary. Raises ConfigError."""
    base = base or Path()
    options = read(raw.get("sweep", {}), SweepOptions, "sweep")
    options = replace(options, axes=anchor(options.axes, base))
    settings = seeds_of(anchor({key: value for key, value in raw.items() if key != "sweep"}, base))
    name = settings.get("name", "sweep")
    if not isinstance(name, str):
        raise ConfigError(f"name: expected one name for the whole sweep, got {name!r}")
    points = find_points(settings, options, base)
    if options.halving and any("rounds" in point for point in points):
        raise ConfigError("sweep.halving: determines how many rounds a point trains, so rounds cannot be an axis")
    return Sweep(name, settings, base, options, points)


def work_out(sweep: Sweep) -> SweepPlan:
    """Return the plan of a sweep. Invalid points carry their problems. Raises ConfigError if all are invalid."""
    names = name_points(sweep.points, sweep.name)
    settings = configuration.change(sweep.settings, sweep.options.axes)
    trials = [_trial(sweep, settings, name, point) for name, point in zip(names, sweep.points, strict=True)]
    config = next((trial.config for trial in trials if trial.config), None)
    if config is None:
        raise ConfigError(*dict.fromkeys(problem for trial in trials for problem in trial.problems))
    own = declared_fields(metric.declare(name) for name, metric in load_metrics(config.evaluate.metrics).items())
    metric = sweep.options.metric or _usual_metric(config, own)
    if metric not in (known := (*METRICS, *own)):
        raise ConfigError(
            f"sweep.metric: {metric!r} is not measured{nearest(metric, known)}; measured metrics: {', '.join(known)}"
        )
    if sweep.options.halving and measured_on(metric) == "test set":
        raise ConfigError(
            f"sweep.halving: uses the validation split and never the test set, but sweep.metric is {metric}; "
            "set data.validation = 0.1, and drop sweep.metric or name a metric of the validation split"
        )
    return SweepPlan(sweep, trials, metric, own)


def write_plan(plan: SweepPlan, folder: Path, failures: Mapping[str, str]) -> None:
    """Write the plan of a sweep and its failures so far to the folder of the sweep."""
    content = {
        "format": FORMAT,
        "name": plan.sweep.name,
        "settings": plan.sweep.settings,
        "sweep": msgspec.to_builtins(plan.sweep.options),
        "metric": plan.metric,
        "points": [{"name": trial.name, "values": trial.values} for trial in plan.trials],
        "failures": dict(failures),
    }
    file = folder / PLAN
    with writing(file, "start the sweep again"):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(file, encode_pretty(content))


def check_folder(folder: Path) -> None:
    """Raise a RunError if the folder contains something other than a sweep."""
    data = read_bytes(folder / PLAN)
    if data is None:
        if folder.is_dir() and any(found.name != "lock" for found in folder.iterdir()):
            raise RunError(f"{folder} is not a sweep: expected {PLAN} in it; choose another name with --set name=NAME")
        return
    found = decode(folder / PLAN, data).get("format")
    if type(found) is not int or not 1 <= found <= FORMAT:
        raise RunError(f"{folder / PLAN} has format {found!r}, and this fedge reads format {FORMAT}")


def damage(run: PlannedRun) -> str | None:
    """Return why an existing run cannot be read; None if it can, or if there is none yet."""
    if not (run.path / CONFIG).exists():
        return None
    problem = Run(run.path).problem
    return None if problem is None else f"{problem}; remove {run.path} to run it again"


def is_done(run: PlannedRun, halved: bool) -> bool:
    """Return whether a run needs no more training. Raises RunError if it exists with settings that affect results.

    With halving, a run may have trained further than asked, if it was among the best before.
    """
    if not (run.path / CONFIG).exists():
        return False
    there = Run(run.path)
    found, wanted = (configuration.effective(configuration.parse(config)) for config in (there.config, run.config))
    ignored = {"rounds"} if halved else set()
    other = [name for name in wanted if found[name] != wanted[name] and name not in ignored]
    if other:
        raise RunError(
            f"{run.path} was run with other settings ({', '.join(other)}); "
            "give the sweep another name with --set name=NAME, or remove that run"
        )
    if found["rounds"] > run.rounds:
        return True
    return found["rounds"] == run.rounds and there.status == "complete"


def _trial(sweep: Sweep, settings: Mapping[str, Any], name: str, point: Point) -> Trial:
    raw = {**configuration.change(settings, point), "name": name}
    try:
        config = configuration.parse(raw, sweep.base)
        if sweep.options.metric and measured_on(sweep.options.metric) == "validation split":
            _check_validation(config, "sweep.metric")
        if sweep.options.halving:
            _check_validation(config, "sweep.halving")
    except ConfigError as error:
        return Trial(name, point, None, error.problems)
    return Trial(name, point, config)


def _check_validation(config: Config, setting: str) -> None:
    if config.data.validation is None:
        raise ConfigError(f"{setting}: needs a validation split, but there is none: set data.validation = 0.1")


def _usual_metric(config: Config, own: OwnFields) -> str:
    """Return the default metric that compares points: on the validation split, if there is one."""
    metric = config.target.metric if config.target else "accuracy"
    if config.data.validation is None or measured_on(metric) == "validation split":
        return metric
    if metric in own:
        return f"{VALIDATION}{metric}"
    return "validation_loss" if describe(metric).better == "lower" else "validation_accuracy"
