"""The configuration of an experiment: typed, complete and validated."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from fedge.algorithms import AlgorithmOptions, Cluster, CodecOptions, Personal, ReduceOptions
from fedge.algorithms.reduced import ByMean
from fedge.core.advice import FORM
from fedge.core.anchor import anchor
from fedge.core.effect import NO_EFFECT, omit, paths_without_effect
from fedge.core.errors import ConfigError, nearest
from fedge.core.fields import METRICS, NO_OWN_FIELDS, VALIDATION, OwnFields, describe, measured_on
from fedge.core.net_options import NetOptions
from fedge.core.schema import Options, read, tag
from fedge.core.track_options import Tracking
from fedge.data import DataOptions
from fedge.edge.cells import CellClock
from fedge.edge.clock import FixedClock
from fedge.edge.selection import SelectionOptions, Uniform
from fedge.metrics import METRIC_KINDS, MetricOptions, check_names
from fedge.models import ModelOptions
from fedge.schedules import SchedulePlan

Seed = Annotated[int, Meta(ge=0)]
Seeds = Annotated[list[Seed], Meta(min_length=1)]
Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Workers = Annotated[int, Meta(ge=1, le=1024)]
_OF_THE_RUN = ("format", "id", "generation", "without_effect", "code", "code_changes", "metrics")
"""Keys of a run's config.json that are not settings."""
_EITHER = {"seed": "seeds", "seeds": "seed"}


class CheckpointOptions(Options, tag=False):
    """How often a checkpoint is written; a run resumes from the last one."""

    every: Annotated[
        int,
        Meta(
            ge=1,
            description="rounds between checkpoints; more if saving took over 5% of the time so far",
            extra=NO_EFFECT,
        ),
    ] = 10


class EvaluateOptions(Options, tag=False):
    """What is evaluated, and how often; the last round is always evaluated."""

    every: Annotated[int, Meta(ge=1, description="rounds between evaluations")] = 1
    at: Annotated[
        Literal["server", "clients"] | None,
        Meta(
            description="on the server's test set, or on the clients' test sets, summed (default: server if it has one)"
        ),
    ] = None
    user_accuracy: Annotated[bool, Meta(description="each client's accuracy on its own test set, before training")] = (
        False
    )
    users: Annotated[
        Literal["all", "selected"],
        Meta(description="clients whose user accuracy is measured: all, or the next round's cohort"),
    ] = "all"
    after_training: Annotated[bool, Meta(description="also measure user accuracy after a round's local training")] = (
        False
    )
    fine_tune_steps: Annotated[
        int, Meta(ge=0, description="local steps of fine-tuning before each client's user accuracy, as a baseline")
    ] = 0
    train: Annotated[bool, Meta(description="accuracy and loss on all training data, and the generalisation gap")] = (
        False
    )
    cosine_distance: Annotated[bool, Meta(description="mean cosine distance between the cohort's updates")] = False
    metrics: Annotated[
        list[MetricOptions],
        Meta(description='additional metrics of the global model, such as ["f1", "top5", "my_file.py:MyMetric"]'),
    ] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_names(self.metrics)


class TargetOptions(Options, tag=False, kw_only=True):
    """The target value for which costs are reported, and early stopping."""

    metric: Annotated[
        str, Meta(description="metric: a built-in one, or one of evaluate.metrics by its recorded name")
    ] = "accuracy"
    value: Annotated[
        float | None, Meta(description="value to reach: a minimum, or a maximum for a loss; required without patience")
    ] = None
    stop: Annotated[bool, Meta(description="end the run when the value is reached")] = False
    patience: Annotated[
        Count | None,
        Meta(description="end the run after this many evaluations of the validation metric without improvement"),
    ] = None

    def __post_init__(self) -> None:
        if self.value is None and self.patience is None:
            raise ValueError("expected value, patience or both, got neither; set target.value")
        if self.value is None and self.stop:
            raise ValueError("stop ends the run when value is reached, but there is no value; set target.value")
        if self.value is not None and describe(self.metric).high == 1 and not 0 <= self.value <= 1:
            raise ValueError(f"value: expected a number from 0 to 1 for {self.metric}, got {self.value:g}")

    def reached(self, record: Mapping[str, Any], own: OwnFields = NO_OWN_FIELDS) -> bool:
        """Return whether a round's record reaches the target; `own` are the fields of the run's own metrics."""
        measured, rank = record.get(self.metric), describe(self.metric, own).rank
        return measured is not None and self.value is not None and rank(measured) <= rank(self.value)


class BudgetOptions(Options, tag=False):
    """Limits on totals; the first one reached ends the run, as `rounds` does."""

    sim_seconds: Annotated[Positive | None, Meta(description="simulated seconds")] = None
    bytes_up: Annotated[Positive | None, Meta(description="bytes uploaded by all clients")] = None
    flops: Annotated[Positive | None, Meta(description="floating point operations of all clients")] = None
    local_steps: Annotated[Positive | None, Meta(description="local steps of all clients")] = None
    energy_j: Annotated[Positive | None, Meta(description="energy in joules used by all clients")] = None

    def spent(self, totals: Mapping[str, float]) -> str | None:
        """Return the name of the first budget that is used up; None if there is none."""
        limits = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return next((name for name, limit in limits if limit is not None and totals[name] >= limit), None)


class TraceOptions(Options, tag=False):
    """Measurements inside rounds, written to `traces.jsonl`; they do not change the run's results."""

    every: Annotated[int, Meta(ge=1, description="rounds between traced rounds")] = 1
    clients: Annotated[int, Meta(ge=1, description="number of traced clients, evenly spread over a round's cohort")] = (
        10
    )
    user_accuracy: Annotated[bool, Meta(description="accuracy on the client's own test set after every local step")] = (
        True
    )
    train_accuracy: Annotated[bool, Meta(description="accuracy on its own training set after every local step")] = False
    accuracy: Annotated[bool, Meta(description="accuracy on the pooled test set after every local step (slow)")] = False
    gradients: Annotated[bool, Meta(description="loss, and gradient norm by layer, at every step")] = True
    activations: Annotated[bool, Meta(description="change of each layer's outputs by an aggregation")] = True
    cosine_distance: Annotated[
        bool, Meta(description="cosine distance between the traced clients' updates, by layer")
    ] = True

    def __post_init__(self) -> None:
        if not any(getattr(self, name) for name in self.__struct_fields__ if name not in ("every", "clients")):
            raise ValueError("nothing is traced; set one of the switches to true, or remove the table")


class EngineOptions(Options, tag=False):
    """How clients are simulated; results are the same to float rounding."""

    name: Annotated[
        Literal["auto", "loop", "wire", "block", "pool", "ray"],
        Meta(description="auto: blocks of clients if the model allows it, on worker processes if that is faster"),
    ] = "auto"
    workers: Annotated[
        Workers | None,
        Meta(description="number of worker processes of pool and ray (default: one per core)", extra=NO_EFFECT),
    ] = None
    stall_s: Annotated[
        float, Meta(ge=1, description="a worker that uses no processor time for this long is replaced", extra=NO_EFFECT)
    ] = 60.0
    rows: Annotated[
        Count | None, Meta(description="clients per block (default: chosen by cache size, model and cores)")
    ] = None
    dtype: Annotated[Literal["float32", "float64"], Meta(description="precision of weights and gradients")] = "float32"
    device: Annotated[Literal["cpu", "cuda", "mps"], Meta(description="device on which clients compute")] = "cpu"
    matmul_precision: Annotated[
        Literal["highest", "high", "medium"], Meta(description="precision of float32 matrix products; lower is faster")
    ] = "highest"


class Config(Options, tag=False, kw_only=True):
    """One experiment."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*\Z",
            max_length=200,
            description="name of the run's directory",
            extra={FORM: "at most 200 letters, digits and . _ + -, starting with a letter or a digit"},
        ),
    ] = "run"
    seed: Annotated[Seed | None, Meta(description="seed of all randomness (default: 1, unless seeds is set)")] = None
    seeds: Annotated[Seeds | None, Meta(description="repetitions, one run per seed")] = None
    rounds: Annotated[int, Meta(ge=1, le=10**9, description="rounds of communication")] = 100
    data: Annotated[DataOptions, Meta(description="data set and its partition over clients")]
    model: Annotated[ModelOptions, Meta(description="model")]
    algorithm: Annotated[AlgorithmOptions, Meta(description="federated learning algorithm")]
    schedule: SchedulePlan = SchedulePlan()
    personal: Personal | None = None
    codec: CodecOptions | None = None
    cluster: Cluster | None = None
    reduce: Annotated[ReduceOptions, Meta(description="how uploads are aggregated")] = ByMean()
    selection: Annotated[SelectionOptions, Meta(description="which clients are selected in a round")] = Uniform()
    edge: Annotated[FixedClock | CellClock, Meta(description="simulated time, radio and mobility")] = FixedClock()
    evaluate: EvaluateOptions = EvaluateOptions()
    trace: Annotated[TraceOptions | None, Meta(extra=NO_EFFECT)] = None
    track: Annotated[Tracking | None, Meta(description="live tracking while the run trains", extra=NO_EFFECT)] = None
    target: TargetOptions | None = None
    budget: BudgetOptions = BudgetOptions()
    checkpoint: CheckpointOptions = CheckpointOptions()
    engine: EngineOptions = EngineOptions()
    net: Annotated[NetOptions, Meta(extra=NO_EFFECT)] = NetOptions()

    def __post_init__(self) -> None:
        if self.seed is not None and self.seeds is not None:
            raise ValueError("seed and seeds exclude each other; give one of them")
        if self.seed is None and self.seeds is None:
            msgspec.structs.force_setattr(self, "seed", 1)
        if self.seeds is not None and len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds must differ from each other, got {self.seeds}")
        self._check_target_metric()
        target = self.target
        if target and target.metric.startswith("user_accuracy") and not self.evaluate.user_accuracy:
            raise ValueError(
                f"target.metric is {target.metric}, which is not measured: set evaluate.user_accuracy = true"
            )
        if self.data.validation is None:
            self._refuse_without_validation()
        if self.selection.needs_deadline and self.edge.deadline_s is None:
            name = tag(type(self.selection))
            raise ValueError(f"selection.name is {name}, which needs a deadline: set edge.deadline_s")
        if self.cluster is not None and self.edge.divided:
            raise ValueError("cluster and the cells of edge both divide clients and exclude each other; remove one")
        if self.cluster is not None and self.edge.deadline_s is not None:
            raise ValueError("cluster needs the answers of all clients, so it excludes edge.deadline_s; remove one")
        if not self.evaluate.user_accuracy and (self.evaluate.after_training or self.evaluate.fine_tune_steps):
            raise ValueError(
                "evaluate.after_training and evaluate.fine_tune_steps concern the user accuracy, "
                "which is not measured: set evaluate.user_accuracy = true"
            )

    @property
    def first_seed(self) -> int:
        """The seed, or the first of several."""
        return self.seeds[0] if self.seeds else self.seed or 0

    def _check_target_metric(self) -> None:
        own = [metric.recorded_as for metric in self.evaluate.metrics]
        known = [*METRICS, *own, *(VALIDATION + name for name in own)]
        if self.target and self.target.metric not in known:
            metric = self.target.metric
            kinds = {tag(kind) for kind in METRIC_KINDS}
            hint = f'; to measure it set evaluate.metrics = ["{metric}"]' if metric in kinds else nearest(metric, known)
            raise ValueError(f"target.metric: {metric!r} is not measured{hint}; measured metrics: {', '.join(known)}")

    def _refuse_without_validation(self) -> None:
        """Raise a ValueError if an option needs a validation split: the test set must not influence training."""
        needs = {
            "the schedule step": self.schedule.needs_metric,
            "target.patience": self.target is not None and self.target.patience is not None,
            "target.metric": self.target is not None and measured_on(self.target.metric) == "validation split",
        }
        for what in (what for what, does in needs.items() if does):
            raise ValueError(f"{what} needs a validation split, but there is none: set data.validation = 0.1")


def load(path: Path, changes: Sequence[str] = ()) -> Config:
    """Return the configuration in a TOML file, with changes `a.b=v` applied. Raises ConfigError.

    Relative paths are relative to the file; those in changes, to the working directory.
    """
    return parse(change(load_raw(path), anchor(assignments(changes), Path())), path.parent)


def load_raw(path: Path) -> dict[str, Any]:
    """Return the contents of a TOML file, unchecked; `name` defaults to the file's stem. Raises ConfigError."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        hint = f"; to change a setting write --set {path}" if "=" in path.name else ""
        raise ConfigError(f"{path}: cannot be read ({error}); expected a TOML file{hint}") from None
    except ValueError as error:  # TOML's own errors, and numbers of thousands of digits
        raise ConfigError(f"{path}: is not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: its tables or lists are nested too deeply") from None
    return {"name": path.stem, **raw}


def parse(raw: Mapping[str, Any], base: Path | None = None) -> Config:
    """Return the configuration in a plain dictionary. Raises ConfigError.

    Relative paths are relative to `base`, by default the working directory.
    """
    if "sweep" in raw:
        raise ConfigError("sweep: this is a sweep; run it with `fedge sweep FILE`")
    settings = {key: value for key, value in raw.items() if key not in _OF_THE_RUN}
    return read(anchor(settings, base or Path()), Config)


def plain(config: Config) -> dict[str, Any]:
    """Return the configuration as a complete plain dictionary that `parse` accepts."""
    found = msgspec.to_builtins(config)
    assert isinstance(found, dict)
    return found


def effective(config: Config) -> dict[str, Any]:
    """Return the configuration as a plain dictionary without the options that do not affect results."""
    return omit(plain(config), paths_without_effect(config))


def assignments(texts: Sequence[str]) -> dict[str, object]:
    """Parse changes given as `a.b=v`. v is a TOML value, or else a string; `a.b=` gives None, which unsets."""
    found: dict[str, object] = {}
    problems = []
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            problems.append(f"--set {text}: expected a.b=value, such as algorithm.learning_rate=0.05")
        found[path.strip()] = _value(value.strip()) if value.strip() else None
    if problems:
        raise ConfigError(*problems)
    return found


def change(raw: Mapping[str, Any], changes: Mapping[str, object]) -> dict[str, Any]:
    """Return a copy with the values at the paths `a.b` set. None unsets; unsetting happens before setting."""
    changed = msgspec.to_builtins(raw)
    assert isinstance(changed, dict)
    for path, value in sorted(changes.items(), key=lambda item: item[1] is not None):
        *tables, key = path.split(".")
        table = changed
        for name in tables:
            inner = table.get(name)
            if value is None and inner is None:  # nothing to unset; the schema reports unknown names
                key = name
                break
            if not isinstance(inner, dict):  # a bare name is short for a table with that name
                inner = {"name": inner} if isinstance(inner, str) else {}
            table[name] = table = inner
        if value is None and table.pop(key, None) is not None:
            continue
        table[key] = value
        if path in _EITHER:  # setting one of the two replaces the other
            table.pop(_EITHER[path], None)
    return changed


def _value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
