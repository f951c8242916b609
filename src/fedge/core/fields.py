"""Recorded fields, each declared once: its meaning, its unit, which direction is better, how it is totalled.

The ledger, the summary, tables, charts, the command line and the documentation read these declarations. For derived
names (`best_loss`, `bytes_up_to_target`, `mean_sim_seconds`), `describe` derives the declaration from that of the
field. A run with `evaluate.metrics` has more fields: it stores a
`MetricDeclaration` of each (core/metric_declaration.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

METRICS: tuple[str, ...] = (
    "accuracy",
    "user_accuracy",
    "user_accuracy_clean",
    "loss",
    "validation_accuracy",
    "validation_loss",
)
"""Metrics of every run: a target or a sweep may name them, and a summary has the last and the best value of each."""

Role = Literal["cost", "time", "metric", "count", "setting", "label"]
Better = Literal["higher", "lower", "neither"]
TO_TARGET = "_to_target"
VALIDATION = "validation_"


class Unit(NamedTuple):
    """A unit of display: its name, its size in base units and its number format."""

    name: str
    size: float
    form: str = ".4g"

    def write(self, value: float) -> str:
        """Return the number without the unit's name; a whole number without a unit is written in full."""
        number = value / self.size
        return f"{number:,.0f}" if not self.name and number.is_integer() else f"{number:{self.form}}"


BYTES = (Unit("MB", 1e6), Unit("GB", 1e9), Unit("TB", 1e12))
FLOPS = (Unit("GFLOPs", 1e9), Unit("TFLOPs", 1e12), Unit("PFLOPs", 1e15))
SECONDS = (Unit("ms", 1e-3), Unit("s", 1.0), Unit("h", 3600.0))
JOULES = (Unit("J", 1.0), Unit("kJ", 1e3), Unit("MJ", 1e6))
PERCENT = (Unit("%", 0.01, ".2f"),)
NUMBER = (Unit("", 1.0),)


@dataclass(frozen=True, kw_only=True)
class Field:
    """The declaration of one recorded field.

    `units` lists the units it may be shown in, smallest first. `total` states whether a run's value is the sum over
    rounds or the last one recorded. A field without `when` is in every record. For a field with `to_target`, the
    summary has the total at the round that first reached the target. Values lie between `low` and `high`.
    """

    name: str
    title: str
    role: Role
    meaning: str
    units: tuple[Unit, ...] = NUMBER
    better: Better = "neither"
    total: Literal["sum", "last"] = "last"
    when: str = ""
    to_target: bool = False
    low: float = -inf
    high: float = inf

    def rank(self, value: float) -> float:
        """Return a sort key that is smaller for better values; if neither direction is better, for larger values."""
        return value if self.better == "lower" else -value

    def write(self, value: float | str) -> str:
        """Return the value with its unit, such as `6 MB` or `75.00%`."""
        if isinstance(value, bool | str):
            return str(value)
        unit = fitting(self.units, value)
        return f"{unit.write(value)} {unit.name}".rstrip().replace(" %", "%")


def _plain(role: Role, name: str, meaning: str, when: str = "", **more: Any) -> Field:
    """A field whose title is its name in words."""
    return Field(name=name, title=name.replace("_", " "), role=role, meaning=meaning, when=when, **more)


_setting, _label = partial(_plain, "setting"), partial(_plain, "label")
_accuracy = partial(_plain, "metric", units=PERCENT, better="higher", low=0.0, high=1.0)
_error = partial(_plain, "metric", better="lower")
"""A metric for which lower is better."""


def _cost(name: str, title: str, units: tuple[Unit, ...], meaning: str, to_target: bool = True) -> Field:
    summed = Field(name=name, title=title, role="cost", meaning=meaning, units=units, better="lower", total="sum")
    return replace(summed, to_target=to_target)


def _time(name: str, title: str, meaning: str) -> Field:
    return Field(name=name, title=title, role="time", meaning=meaning, units=SECONDS, better="lower", total="sum")


def _count(name: str, title: str, better: Better, meaning: str, when: str = "") -> Field:
    return Field(name=name, title=title, role="count", meaning=meaning, better=better, total="sum", when=when)


def _over_clients(name: str, meaning: str, when: str) -> Iterator[Field]:
    """Fields for an accuracy on each client's own test set: its mean, spread and minimum over clients."""
    mean = _accuracy(name, f"{meaning}, mean over clients", when)
    title = mean.title
    yield mean
    yield replace(
        mean, name=f"{name}_std", title=f"{title} std", better="lower", meaning="its standard deviation over clients"
    )
    yield replace(mean, name=f"{name}_min", title=f"{title} min", meaning="its minimum over clients")
    yield replace(
        mean,
        name=f"{name}_clean",
        title=f"{title} clean",
        meaning="its mean over clients without noise",
        when=f"{when}, and some clients have noise",
    )


_EVALUATED = "evaluated"

FIELDS: tuple[Field, ...] = (
    Field(name="round", title="round", role="label", meaning="the round's number, starting at 1"),
    _count("cohort", "clients asked", "neither", "distinct clients asked in any exchange of the round"),
    _count("reported", "clients that reported", "higher", "clients whose answers were all accepted"),
    _count("dropped", "dropped clients", "lower", "clients asked whose answers do not count, `cohort` - `reported`"),
    _count("rejected", "rejected clients", "lower", "distinct clients with a rejected answer", "there are any"),
    _count("late", "late clients", "lower", "distinct clients whose answers came too late", "there are any"),
    _count("declined", "clients that declined", "lower", "clients that declined the work", "there are any"),
    _count("void", "void rounds", "lower", "true if the round left the state unchanged", "no client answered"),
    _setting("learning_rate", "the clients' step size"),
    _setting("server_learning_rate", "the server's step size", "the algorithm has one"),
    _setting("num_local_steps", "local steps per client, as scheduled", "clients train by steps"),
    _setting("num_local_epochs", "local epochs per client, as scheduled", "clients train by epochs"),
    _cost("messages", "messages", NUMBER, "number of requests and answers", to_target=False),
    _cost("bytes_down", "download", BYTES, "encoded bytes sent to all clients"),
    _cost("bytes_up", "upload", BYTES, "encoded bytes received from all clients"),
    _cost("bytes_backhaul", "backhaul", BYTES, "bytes between the servers of cells; 0 without cells", to_target=False),
    _cost("local_steps", "local steps", NUMBER, "local steps of all clients"),
    _cost("flops", "compute", FLOPS, "floating point operations of all clients"),
    _cost("sim_seconds", "edge time", SECONDS, "simulated seconds of the round"),
    _cost("energy_j", "energy", JOULES, "joules used by all clients to compute and transmit"),
    _time("sim_down_s", "edge download time", "the part of `sim_seconds` spent on downloads"),
    _time("sim_compute_s", "edge compute time", "the part of `sim_seconds` spent on local training"),
    _time("sim_up_s", "edge upload time", "the part of `sim_seconds` spent on uploads"),
    _time("sim_wait_s", "edge waiting time", "the part of `sim_seconds` spent waiting for other clients"),
    _time("seconds", "real time", "real seconds, including evaluation"),
    _label("clock", "whether `sim_seconds` is `simulated` or `measured`"),
    _label("evaluated_at", "`server` or `clients`: where the model was evaluated", _EVALUATED),
    Field(
        name="evaluated_clients",
        title="clients that evaluated",
        role="count",
        meaning="clients that evaluated the model on their test sets",
        better="higher",
        when="evaluated by clients",
    ),
    _accuracy("accuracy", "CA, accuracy of the global model on the pooled test set", "evaluated, classification"),
    _error("loss", "loss of the global model on the pooled test set", _EVALUATED),
    *_over_clients(
        "user_accuracy", "UA, accuracy on each client's own test set", "evaluated, with `evaluate.user_accuracy`"
    ),
    *_over_clients(
        "user_accuracy_after", "UA after a round's local training", "evaluated, with `evaluate.after_training`"
    ),
    _accuracy(
        "validation_accuracy",
        "accuracy of the global model on the validation split",
        "evaluated, with `data.validation`",
    ),
    _error("validation_loss", "loss of the global model on the validation split", "evaluated, with `data.validation`"),
    _error("train_loss", "mean loss of the clients' first minibatches", "a client has trained"),
    _accuracy(
        "train_accuracy", "accuracy of the global model on all training data", "evaluated, with `evaluate.train`"
    ),
    _error("train_eval_loss", "loss of the global model on all training data", "evaluated, with `evaluate.train`"),
    _error("generalisation_gap", "(L_test - L_train) / (L_test + L_train)", "evaluated, with `evaluate.train`"),
    _error("weight_divergence", "mean distance of the cells' models from their merge", "with cells, when they merge"),
    _error(
        "cosine_distance",
        "mean of 1 - cosine over all pairs of the cohort's updates",
        "with `evaluate.cosine_distance`",
    ),
)
"""The fields of a round's record."""

SUMMARY_FIELDS: tuple[Field, ...] = (
    Field(name="rounds", title="rounds", role="count", meaning="completed rounds", better="lower", to_target=True),
    _label("ended_by", "`rounds`, `target`, `patience`, `callback`, or the exhausted budget, such as `bytes_up`"),
)
"""Fields of a run's summary that no round has."""

SUMS = {"bytes": ("bytes_up", "bytes_down")}
"""Names for the sum of several fields."""

COSTS: tuple[str, ...] = tuple(field.name for field in FIELDS if field.role == "cost")
"""Costs of a round; the cost of a run is the sum over its rounds."""
COSTS_TO_TARGET: tuple[str, ...] = tuple(field.name for field in FIELDS if field.to_target)
AXES: tuple[str, ...] = ("round", *(field.name for field in FIELDS if field.total == "sum" and not field.when))
"""Possible x axes of a curve: rounds, or the cumulative sum of a field that every round has."""

_DECLARED = {field.name: field for field in (*FIELDS, *SUMMARY_FIELDS)}

OwnFields = Mapping[str, Field]
"""The fields that `evaluate.metrics` adds to those of every run, by name."""
NO_OWN_FIELDS: OwnFields = MappingProxyType({})


def is_taken(name: str) -> bool:
    """Whether a name already belongs to a field of every run or is derived from one, so that no metric may use it."""
    prefixes = (VALIDATION, "best_", "mean_", "median_")
    return name in _DECLARED or name in SUMS or name.startswith(prefixes) or is_to_target(name)


def describe(name: str, own: OwnFields = NO_OWN_FIELDS) -> Field:
    """Return the declaration of a field or of a derived name.

    `best_x`, `mean_x` and `median_x` (over rounds), `x_to_target` and sums such as `bytes` derive from the declared
    fields and from `own`, the fields of the run's metrics. Any other name gets a neutral declaration: a plain number
    for which neither direction is better.
    """
    if name in _DECLARED:
        return _DECLARED[name]
    if name in own:
        return own[name]
    if name in SUMS:
        parts = [describe(part) for part in SUMS[name]]
        title = " + ".join(part.title for part in parts)
        return replace(parts[0], name=name, title=title, meaning=" + ".join(f"`{part.name}`" for part in parts))
    prefix, _, rest = name.partition("_")
    if rest and prefix == "best":
        base = describe(rest, own)
        return replace(base, name=name, title=f"best {base.title}")
    if rest and prefix in ("mean", "median"):
        base = describe(rest, own)
        return replace(base, name=name, title=f"{prefix} {base.title} per round", total="last")
    if is_to_target(name) and (base := describe(name.removesuffix(TO_TARGET))).to_target:
        return replace(base, name=name, title=f"{base.title} to target")
    return Field(name=name, title=name.replace("_", " "), role="metric", meaning="")


def is_text(name: str) -> bool:
    """Whether a field of every run, or one derived from it, holds text: the role of `describe`, in much less time."""
    base = name
    while base not in _DECLARED and base.startswith(("best_", "mean_", "median_")):
        base = base.partition("_")[2]
    return base in _DECLARED and _DECLARED[base].role == "label"


def measured_on(metric: str) -> Literal["validation split", "test set"]:
    """Return the data that a metric is measured on. Decisions during a run may only use the validation split."""
    return "validation split" if metric.startswith(VALIDATION) else "test set"


def is_to_target(name: str) -> bool:
    """Whether a name is a cost to the target, which is absent if the target was not reached."""
    return name.endswith(TO_TARGET)


def components(name: str) -> tuple[str, ...]:
    """Return the recorded names whose values add up to this one: for `bytes_to_target`, uploads and downloads."""
    base = name.removesuffix(TO_TARGET)
    return tuple(part + name[len(base) :] for part in SUMS[base]) if base in SUMS else (name,)


def fitting(units: Sequence[Unit], largest: float) -> Unit:
    """Return the largest unit in which the largest value is at least 2, or at least 1 in the unit of the records.

    Units below that of the records, such as milliseconds, are for values below 1 only, not for 0.
    """
    least = next((unit for unit in units if unit.size == 1), units[0]) if largest <= 0 else units[0]
    return next((unit for unit in reversed(units) if largest >= unit.size * (2 if unit.size > 1 else 1)), least)


def titled(title: str, unit: Unit) -> str:
    """Return a title with its unit, such as `upload (MB)`; only the title if the unit has no name."""
    return f"{title} ({unit.name})" if unit.name else title
