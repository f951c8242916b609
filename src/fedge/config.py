"""An experiment as a file says it: typed, complete, checked."""

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
    """How often everything is saved; a run resumes from the last one."""

    every: Annotated[
        int, Meta(ge=1, description="rounds; less often if saving took over 5% of the time so far", extra=NO_EFFECT)
    ] = 10


class EvaluateOptions(Options, tag=False):
    """What is measured, and when; the last round always is."""

    every: Annotated[int, Meta(ge=1, description="rounds")] = 1
    at: Annotated[
        Literal["server", "clients"] | None,
        Meta(description="on the server's test set, or summed over clients' own (server, where it has a test set)"),
    ] = None
    user_accuracy: Annotated[bool, Meta(description="each client's accuracy on its own test set, before training")] = (
        False
    )
    users: Annotated[
        Literal["all", "selected"], Meta(description="whose: all clients, or the cohort of the next round")
    ] = "all"
    after_training: Annotated[bool, Meta(description="user accuracy after a round's local training too")] = False
    fine_tune_steps: Annotated[
        int, Meta(ge=0, description="steps on its own data that each client takes before its user accuracy: a baseline")
    ] = 0
    train: Annotated[bool, Meta(description="accuracy and loss on all training data, and the generalisation gap")] = (
        False
    )
    cosine_distance: Annotated[bool, Meta(description="mean cosine distance between the cohort's updates")] = False
    metrics: Annotated[
        list[MetricOptions],
        Meta(description='further metrics of the global model, such as ["f1", "top5", "my_file.py:MyMetric"]'),
    ] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_names(self.metrics)


class TargetOptions(Options, tag=False, kw_only=True):
    """What the costs are reported for."""

    metric: Annotated[
        str, Meta(description="which metric: of every run, or one of evaluate.metrics by the name that it records")
    ] = "accuracy"
    value: Annotated[
        float | None, Meta(description="the value to reach: at least, or for a loss at most; needed without patience")
    ] = None
    stop: Annotated[bool, Meta(description="end the run when it is reached")] = False
    patience: Annotated[
        Count | None,
        Meta(description="end the run after this many evaluations of the validation metric without improvement"),
    ] = None

    def __post_init__(self) -> None:
        if self.value is None and self.patience is None:
            raise ValueError("expected a value, a patience or both, got neither; set target.value")
        if self.value is None and self.stop:
            raise ValueError("stop ends the run when a value is reached, but there is none; set target.value")
        if self.value is not None and describe(self.metric).high == 1 and not 0 <= self.value <= 1:
            raise ValueError(f"value: {self.metric} is a share, expected a number from 0 to 1, got {self.value:g}")

    def reached(self, record: Mapping[str, Any], own: OwnFields = NO_OWN_FIELDS) -> bool:
        """Whether a round's record shows it; `own` are the fields of the run's own metrics."""
        measured, rank = record.get(self.metric), describe(self.metric, own).rank
        return measured is not None and self.value is not None and rank(measured) <= rank(self.value)


class BudgetOptions(Options, tag=False):
    """The first of these totals that is reached ends the run, as `rounds` does."""

    sim_seconds: Annotated[Positive | None, Meta(description="simulated seconds")] = None
    bytes_up: Annotated[Positive | None, Meta(description="bytes uploaded by all clients")] = None
    flops: Annotated[Positive | None, Meta(description="floating point operations of all clients")] = None
    local_steps: Annotated[Positive | None, Meta(description="local steps of all clients")] = None
    energy_j: Annotated[Positive | None, Meta(description="joules used by all clients")] = None

    def spent(self, totals: Mapping[str, float]) -> str | None:
        """Which budget is used up."""
        limits = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return next((name for name, limit in limits if limit is not None and totals[name] >= limit), None)


class TraceOptions(Options, tag=False):
    """What is looked at inside rounds and written to `traces.jsonl`; the run comes to the same."""

    every: Annotated[int, Meta(ge=1, description="rounds")] = 1
    clients: Annotated[int, Meta(ge=1, description="traced clients of a round's cohort, evenly spread over it")] = 10
    user_accuracy: Annotated[bool, Meta(description="after every local step, on the client's own test set")] = True
    train_accuracy: Annotated[bool, Meta(description="the same on its own training set")] = False
    accuracy: Annotated[bool, Meta(description="the same on the pooled test set, which takes long")] = False
    gradients: Annotated[bool, Meta(description="loss, and length of the gradient by layer, at every step")] = True
    activations: Annotated[bool, Meta(description="how far an aggregation moves what each layer puts out")] = True
    cosine_distance: Annotated[bool, Meta(description="between the traced clients' updates, by layer")] = True

    def __post_init__(self) -> None:
        if not any(getattr(self, name) for name in self.__struct_fields__ if name not in ("every", "clients")):
            raise ValueError("there is nothing to trace; set one of its switches to true, or leave the table out")


class EngineOptions(Options, tag=False):
    """How clients are run; the result is the same to float rounding."""

    name: Annotated[
        Literal["auto", "loop", "wire", "block", "pool", "ray"],
        Meta(description="auto: blocks of clients where the model allows it, on worker processes where that is faster"),
    ] = "auto"
    workers: Annotated[
        Workers | None,
        Meta(description="processes of pool and ray (as many as there are cores)", extra=NO_EFFECT),
    ] = None
    stall_s: Annotated[
        float, Meta(ge=1, description="a worker that uses no processor time this long is replaced", extra=NO_EFFECT)
    ] = 60.0
    rows: Annotated[
        Count | None, Meta(description="clients in a block (as the cache, the model and the cores suggest)")
    ] = None
    dtype: Annotated[Literal["float32", "float64"], Meta(description="precision of weights and gradients")] = "float32"
    device: Annotated[Literal["cpu", "cuda", "mps"], Meta(description="where clients compute")] = "cpu"
    matmul_precision: Annotated[
        Literal["highest", "high", "medium"], Meta(description="of products in float32: less than highest is faster")
    ] = "highest"


class Config(Options, tag=False, kw_only=True):
    """One experiment."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*\Z",
            max_length=200,
            description="names the run's directory",
            extra={FORM: "at most 200 letters, digits and . _ + -, of which the first is a letter or a digit"},
        ),
    ] = "run"
    seed: Annotated[Seed | None, Meta(description="of everything random (1 if there are no seeds)")] = None
    seeds: Annotated[Seeds | None, Meta(description="repeats, one run each")] = None
    rounds: Annotated[int, Meta(ge=1, le=10**9, description="rounds of communication")] = 100
    data: Annotated[DataOptions, Meta(description="data set, and how it is split over clients")]
    model: Annotated[ModelOptions, Meta(description="network")]
    algorithm: Annotated[AlgorithmOptions, Meta(description="what clients and server do")]
    schedule: SchedulePlan = SchedulePlan()
    personal: Personal | None = None
    codec: CodecOptions | None = None
    cluster: Cluster | None = None
    reduce: Annotated[ReduceOptions, Meta(description="how uploads become one")] = ByMean()
    selection: Annotated[SelectionOptions, Meta(description="who is asked in a round")] = Uniform()
    edge: Annotated[FixedClock | CellClock, Meta(description="how simulated time is counted")] = FixedClock()
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
            raise ValueError("cluster and the cells of edge both divide clients, and exclude each other; leave one out")
        if self.cluster is not None and self.edge.deadline_s is not None:
            raise ValueError(
                "cluster divides clients by the answers of all, so it excludes edge.deadline_s; leave one out"
            )
        if not self.evaluate.user_accuracy and (self.evaluate.after_training or self.evaluate.fine_tune_steps):
            raise ValueError(
                "evaluate.after_training and evaluate.fine_tune_steps concern the user accuracy, "
                "which is not measured: set evaluate.user_accuracy = true"
            )

    def _check_target_metric(self) -> None:
        own = [metric.recorded_as for metric in self.evaluate.metrics]
        known = [*METRICS, *own, *(VALIDATION + name for name in own)]
        if self.target and self.target.metric not in known:
            metric = self.target.metric
            kinds = {tag(kind) for kind in METRIC_KINDS}
            hint = f'; to measure it set evaluate.metrics = ["{metric}"]' if metric in kinds else nearest(metric, known)
            raise ValueError(f"target.metric: {metric!r} is not measured{hint}; measured are {', '.join(known)}")

    def _refuse_without_validation(self) -> None:
        """The test set must not decide how training goes on."""
        looks = {
            "the schedule step": self.schedule.needs_metric,
            "target.patience": self.target is not None and self.target.patience is not None,
            "target.metric": self.target is not None and measured_on(self.target.metric) == "validation split",
        }
        for what in (what for what, does in looks.items() if does):
            raise ValueError(f"{what} looks at the validation split, and there is none: set data.validation = 0.1")


def load(path: Path, changes: Sequence[str] = ()) -> Config:
    """The configuration in a TOML file, with changes `a.b=v` on top.

    Relative paths start at the file; those of changes at the working directory.
    """
    return parse(change(load_raw(path), anchor(assignments(changes), Path())), path.parent)


def load_raw(path: Path) -> dict[str, Any]:
    """What a TOML file says, unchecked; its name names the experiment if nothing else does."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        hint = f"; to change a setting write --set {path}" if "=" in path.name else ""
        raise ConfigError(f"{path}: cannot be read ({error}); expected a TOML file{hint}") from None
    except ValueError as error:  # TOML's own errors, and numbers of thousands of digits
        raise ConfigError(f"{path}: is not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: its tables or lists are nested too deep") from None
    return {"name": path.stem, **raw}


def parse(raw: Mapping[str, Any], base: Path | None = None) -> Config:
    """The configuration in a plain dictionary; relative paths start at `base`, or else here."""
    if "sweep" in raw:
        raise ConfigError("sweep: this is a sweep; run it with `fedge sweep FILE`")
    settings = {key: value for key, value in raw.items() if key not in _OF_THE_RUN}
    return read(anchor(settings, base or Path()), Config)


def plain(config: Config) -> dict[str, Any]:
    """The configuration as a plain dictionary, complete, that `parse` reads back."""
    found = msgspec.to_builtins(config)
    assert isinstance(found, dict)
    return found


def effective(config: Config) -> dict[str, Any]:
    """Return the configuration as a plain dictionary without the options that do not affect results."""
    return omit(plain(config), paths_without_effect(config))


def assignments(texts: Sequence[str]) -> dict[str, object]:
    """Changes given as `a.b=v`; v is a TOML value, or else a string. Of `a.b=` it is None, which unsets."""
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
    """A dictionary with some values, given by their path `a.b`, set; None unsets, and comes before what is set."""
    changed = msgspec.to_builtins(raw)
    assert isinstance(changed, dict)
    for path, value in sorted(changes.items(), key=lambda item: item[1] is not None):
        *tables, key = path.split(".")
        table = changed
        for name in tables:
            inner = table.get(name)
            if value is None and inner is None:  # there is nothing to unset; the schema says whether there could be
                key = name
                break
            if not isinstance(inner, dict):  # a name alone stands for a table with that name
                inner = {"name": inner} if isinstance(inner, str) else {}
            table[name] = table = inner
        if value is None and table.pop(key, None) is not None:
            continue
        table[key] = value
        if path in _EITHER:  # whoever sets one of the two means it instead of the other
            table.pop(_EITHER[path], None)
    return changed


def _value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
