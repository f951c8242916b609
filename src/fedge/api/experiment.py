"""`Experiment`: an experiment described with Python objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Never, overload

import msgspec
from msgspec import Struct

from fedge import config as configuration
from fedge.algorithms import Cluster, CodecOptions, Personal, ReduceOptions
from fedge.algorithms.options import TrainingOptions
from fedge.api.found_runs import find_same
from fedge.api.run import Run, Runs
from fedge.api.stepping import CallbackLike, Rounds
from fedge.config import (
    BudgetOptions,
    CheckpointOptions,
    Config,
    EngineOptions,
    EvaluateOptions,
    TargetOptions,
    TraceOptions,
)
from fedge.core.anchor import anchor
from fedge.core.code_digest import digest_code
from fedge.core.errors import ConfigError, nearest
from fedge.core.lent import PYTHON, lending
from fedge.core.progress import Progress
from fedge.core.schema import Options, tag
from fedge.core.track_options import Tracking
from fedge.data.in_memory import CLIENT, FrameTable, InMemory, in_memory
from fedge.data.partition import Partition
from fedge.data.python_data import PythonData, digest_samples
from fedge.edge.cells import CellClock
from fedge.edge.clock import FixedClock
from fedge.edge.selection import SelectionOptions
from fedge.experiment.start import Steps, resumed_steps, steps, unused
from fedge.models import ModelOptions
from fedge.models.python_model import ModelSource, hand_over
from fedge.runs.files import seed_path
from fedge.schedules import SchedulePlan

Table = Mapping[str, Any]
"""The settings of a section, as in an experiment file."""


class Experiment:
    """An experiment: clients with data, a model and an algorithm. Other settings default as in an experiment file.

    `data` is the name of a data set, its options, arrays `(x, y)` or `(x_train, y_train, x_test, y_test)`, a PyTorch
    data set or two `(train, test)`, a data frame with a column `target`, a Hugging Face data set with a column `label`,
    or one of `Arrays`, `Table` and `Clients`. `model` is a name, its options, a module, or a class or function that
    returns one. A module is copied: every run starts from its current weights, and the original is not modified. A
    class or function is called with torch seeded by the run's seed. Sections are given as options, such as
    `selection=fedge.Uniform(fraction=0.1)`, as tables such as `{"fraction": 0.1}`, or as a name. Raises a ConfigError
    that lists all problems.
    """

    def __init__(
        self,
        *,
        data: Any,
        model: str | Table | ModelOptions | ModelSource,
        algorithm: str | Table | TrainingOptions,
        clients: int | None = None,
        partition: str | Table | Partition | None = None,
        name: str | None = None,
        seed: int | None = None,
        rounds: int | None = None,
        selection: str | Table | SelectionOptions | None = None,
        schedule: Table | SchedulePlan | None = None,
        personal: str | Table | Personal | None = None,
        codec: Table | CodecOptions | None = None,
        cluster: Table | Cluster | None = None,
        reduce: str | Table | ReduceOptions | None = None,
        edge: str | Table | FixedClock | CellClock | None = None,
        evaluate: Table | EvaluateOptions | None = None,
        target: Table | TargetOptions | None = None,
        budget: Table | BudgetOptions | None = None,
        trace: Table | TraceOptions | None = None,
        track: str | Table | Tracking | None = None,
        checkpoint: Table | CheckpointOptions | None = None,
        engine: str | Table | EngineOptions | None = None,
        **unknown: Never,
    ) -> None:
        given = {key: value for key, value in locals().items() if key not in ("self", "unknown", "__class__")}
        _refuse_unknown(unknown, given)
        _refuse_classes(given)
        lent: dict[str, Any] = {}
        raw = {key: _plain(value, lent) for key, value in given.items() if value is not None}
        raw["data"] = _data_settings(data, raw.pop("clients", None), raw.pop("partition", None), lent)
        raw["model"] = _model_settings(model, lent)
        for section, key in (("engine", "name"), ("track", "name"), ("personal", "private")):
            if isinstance(raw.get(section), str):
                raw[section] = {key: raw[section]}
        self._lent = lent
        with lending(lent):
            self._config = configuration.parse(raw)

    @classmethod
    def from_file(cls, path: str | Path, **changes: Any) -> Experiment:
        """Return the experiment in a file; `changes` are keyed by setting path, as in `fedge.run`."""
        made, path = cls.__new__(cls), Path(path)
        raw = configuration.change(configuration.load_raw(path), anchor(changes, Path()))
        made._lent, made._config = {}, configuration.parse(raw, path.parent)
        return made

    @property
    def config(self) -> Config:
        """All settings, validated and with defaults filled in."""
        return self._config

    @property
    def lent(self) -> Mapping[str, Any]:
        """The model and data that were given as objects, keyed by their digests in the settings."""
        return self._lent

    @property
    def settings(self) -> dict[str, Any]:
        """All settings as a dictionary, as in a run's config.json."""
        return configuration.plain(self._config)

    def __repr__(self) -> str:
        parts = [configuration.plain(self._config)[part] for part in ("data", "model", "algorithm")]
        names = [part["type"] if part["name"] == PYTHON else part["name"] for part in parts]
        return f"Experiment({self._config.name!r}: {', '.join(names)})"

    @overload
    def run(
        self,
        rounds: int | None = None,
        *,
        seed: int | None = None,
        seeds: None = None,
        name: str | None = None,
        runs: str | Path = "runs",
        resume: bool = False,
        progress: bool | Progress = True,
        callbacks: Sequence[CallbackLike] = (),
    ) -> Run: ...

    @overload
    def run(
        self,
        rounds: int | None = None,
        *,
        seed: None = None,
        seeds: Sequence[int],
        name: str | None = None,
        runs: str | Path = "runs",
        resume: bool = False,
        progress: bool | Progress = True,
        callbacks: Sequence[CallbackLike] = (),
    ) -> Runs: ...

    def run(
        self,
        rounds: int | None = None,
        *,
        seed: int | None = None,
        seeds: Sequence[int] | None = None,
        name: str | None = None,
        runs: str | Path = "runs",
        resume: bool = False,
        progress: bool | Progress = True,
        callbacks: Sequence[CallbackLike] = (),
    ) -> Run | Runs:
        """Train and return the run; with `seeds`, return one run per seed.

        Each run gets a new directory below `runs`, named after the experiment. With `resume`, the newest run of that
        name with the same settings, data and model continues from its last checkpoint; it may have fewer rounds. If
        every run of that name differs, raise a RunError that names the difference. If there is none, start a new run.
        """
        several = list(seeds) if isinstance(seeds, Iterable) else seeds
        config = self._changed({"rounds": rounds, "seed": seed, "seeds": several, "name": name})
        with self._start(config, runs, resume, progress, callbacks) as trained:
            for _ in trained:
                pass
        if config.seeds is None:
            return trained.run
        return Runs(Run(seed_path(trained.path, each), self._lent) for each in config.seeds)

    def rounds(
        self,
        rounds: int | None = None,
        *,
        seed: int | None = None,
        name: str | None = None,
        runs: str | Path = "runs",
        resume: bool = False,
        progress: bool | Progress = False,
        callbacks: Sequence[CallbackLike] = (),
    ) -> Rounds:
        """Return an iterator over the rounds' records; each round is trained when the iterator is advanced."""
        config = self._changed({"rounds": rounds, "seed": seed, "name": name})
        if config.seeds is not None:
            raise ConfigError("seeds: rounds() trains a single run; pass one of the seeds as seed=")
        return self._start(config, runs, resume, progress, callbacks)

    def _start(
        self,
        config: Config,
        runs: str | Path,
        resume: bool,
        progress: bool | Progress,
        callbacks: Sequence[CallbackLike],
    ) -> Rounds:
        place = Path(runs) / config.name
        with lending(self._lent):
            found = find_same(config, place) if resume else None
        path = found or unused(place)
        take: Callable[[Path, Config, Progress], Steps] = steps if found is None else resumed_steps
        return Rounds(
            path,
            lambda listener: take(path, config, listener),
            precision=config.engine.matmul_precision,
            lent=self._lent,
            progress=progress,
            callbacks=callbacks,
        )

    def _changed(self, changes: Mapping[str, Any]) -> Config:
        given = {key: value for key, value in changes.items() if value is not None}
        with lending(self._lent):
            return configuration.parse(configuration.change(self.settings, given)) if given else self._config


def _refuse_unknown(unknown: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    if "seeds" in unknown:
        raise ConfigError("seeds: pass several seeds to run(): experiment.run(seeds=[1, 2, 3])")
    if unknown:
        problems = [f"{key}: unknown setting{nearest(key, known)}; valid here: {', '.join(known)}" for key in unknown]
        raise ConfigError(*problems)


def _refuse_classes(given: Mapping[str, Any]) -> None:
    """Raise a ConfigError for option classes passed instead of instances."""
    classes = {key: kind for key, kind in given.items() if isinstance(kind, type) and issubclass(kind, Struct)}
    if classes:
        names = [(key, kind.__name__) for key, kind in classes.items()]
        raise ConfigError(*(f"{key}: expected options, got the class {name}; write {name}()" for key, name in names))


def _plain(value: Any, lent: dict[str, Any]) -> Any:
    """Return options as plain settings and other values unchanged; add user-defined classes to `lent`."""
    if isinstance(value, Struct):
        fields = {field.encode_name: getattr(value, field.name) for field in msgspec.structs.fields(value)}
        return _name(type(value), lent) | {key: _plain(inner, lent) for key, inner in fields.items()}
    if isinstance(value, Mapping):
        return {key: _plain(inner, lent) for key, inner in value.items()}
    return [_plain(inner, lent) for inner in value] if isinstance(value, list | tuple) else value


def _name(kind: type[Struct], lent: dict[str, Any]) -> dict[str, str]:
    """Return the setting that selects a kind of options; empty if there is only one kind."""
    if (name := tag(kind)) is None:
        return {}
    if getattr(kind, "origin", None) is None and kind.__module__.partition(".")[0] != "fedge":
        name = f"{PYTHON}:{kind.__name__}@{digest_code(kind)[:12]}"
        lent[name] = kind
    return {kind.__struct_config__.tag_field or "name": name}


def _data_settings(data: Any, clients: Any, partition: Any, lent: dict[str, Any]) -> Any:
    division = {key: value for key, value in (("clients", clients), ("partition", partition)) if value is not None}
    if isinstance(data, str):
        return {"name": data, **division}
    if isinstance(data, Options):
        return {**_plain(data, lent), **division}
    source = in_memory(data)
    if source is None:
        if not isinstance(data, Mapping):
            raise ConfigError(
                "data: expected the name of a data set, its options, arrays (x, y), a PyTorch data set, a data frame, "
                f"fedge.Arrays, fedge.Table or fedge.Clients; got {type(data).__name__}"
            )
        if "name" not in data:
            keys = ", ".join(map(str, data)) or "none"
            raise ConfigError(f"data: expected a table with a name, got the keys {keys}; pass arrays as (x, y)")
        if twice := sorted(division.keys() & data.keys()):
            raise ConfigError(f"data.{twice[0]}: given twice, in data and as {twice[0]}=; drop one of them")
        return {**_plain(data, lent), **division}
    if isinstance(source, FrameTable) and (file := source.file_settings) is not None:
        return {**_plain(file, lent), **division}
    return _lend_data(source, division, lent)


def _lend_data(source: InMemory, division: dict[str, Any], lent: dict[str, Any]) -> dict[str, Any]:
    if source.divided:
        if division:
            raise ConfigError(f"{next(iter(division))}: fedge.Clients already defines the clients; drop it")
        division = {"partition": {"name": "natural", "column": CLIENT}}
    partition = division.get("partition")
    column = partition.get("column") if isinstance(partition, Mapping) and partition.get("name") == "natural" else None
    whole = source.whole([column] if isinstance(column, str) and not source.divided else [])
    settings = PythonData(type=source.type, digest=digest_samples(whole))
    lent[settings.digest] = whole
    own = {"name": PYTHON, "type": settings.type, "digest": settings.digest}
    return {**own, **_plain(source.settings, lent), **division}


def _model_settings(model: Any, lent: dict[str, Any]) -> Any:
    if isinstance(model, str | Mapping | Options):
        return _plain(model, lent)
    settings, make = hand_over(model)
    lent[settings.digest] = make
    return msgspec.to_builtins(settings)
