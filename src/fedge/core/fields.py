"""The fields that a run records, each declared once: what it means, its unit, which way is better, how it adds up.

The ledger, the summary, tables, charts, the command line and the documentation read these declarations. Names that are
made from a field's name (`best_loss`, `bytes_up_to_target`, `mean_sim_seconds`) are described by `describe`, which
derives their declaration from that of the field. A run with `evaluate.metrics` has more fields: it stores a
`MetricDeclaration` of each (core/metric_declaration.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType
from typing import Literal, NamedTuple

METRICS: tuple[str, ...] = (
    "accuracy",
    "user_accuracy",
    "user_accuracy_clean",
    "loss",
    "validation_accuracy",
    "validation_loss",
)
"""What every run may be judged by: a target or a sweep may name it, and a summary has its last and its best value."""

TO_TARGET = "_to_target"
VALIDATION = "validation_"


class Unit(NamedTuple):
    """A value of 3 * size is written as 3 of this unit, in this format."""

    name: str
    size: float
    form: str = ".4g"

    def write(self, value: float) -> str:
        """The number without the unit's name; a whole number that has no unit is written in full."""
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

    `units` are those it may be shown in, smallest first. `total` tells whether a run's value is the sum over rounds or
    the last one recorded. A field without `when` is in every record. Of a field with `to_target`, the summary has the
    total at the round that first reached the target. Values lie between `low` and `high`.
    """

    name: str
    title: str
    role: Literal["cost", "time", "metric", "count", "setting", "label"]
    meaning: str
    units: tuple[Unit, ...] = NUMBER
    better: Literal["higher", "lower", "neither"] = "neither"
    total: Literal["sum", "last"] = "last"
    when: str = ""
    to_target: bool = False
    low: float = -inf
    high: float = inf

    def rank(self, value: float) -> float:
        """A number that is smaller for a better value; where neither way is better, for a larger value."""
        return value if self.better == "lower" else -value

    def write(self, value: float | str) -> str:
        """The value with its unit, such as `6 MB` or `75.00%`."""
        if isinstance(value, bool | str):
            return str(value)
        unit = fitting(self.units, value)
        return f"{unit.write(value)} {unit.name}".rstrip().replace(" %", "%")


def _cost(name: str, title: str, units: tuple[Unit, ...], meaning: str, to_target: bool = True) -> Field:
    return Field(
        name=name,
        title=title,
        role="cost",
        meaning=meaning,
        units=units,
        better="lower",
        total="sum",
        to_target=to_target,
    )


def _time(name: str, title: str, meaning: str) -> Field:
    return Field(name=name, title=title, role="time", meaning=meaning, units=SECONDS, better="lower", total="sum")


def _count(name: str, title: str, better: Literal["higher", "lower", "neither"], meaning: str, when: str = "") -> Field:
    return Field(name=name, title=title, role="count", meaning=meaning, better=better, total="sum", when=when)


def _setting(name: str, meaning: str, when: str = "") -> Field:
    return Field(name=name, title=name.replace("_", " "), role="setting", meaning=meaning, when=when)


def _label(name: str, meaning: str, when: str = "") -> Field:
    return Field(name=name, title=name.replace("_", " "), role="label", meaning=meaning, when=when)


def _accuracy(name: str, meaning: str, when: str) -> Field:
    title = name.replace("_", " ")
    return Field(
        name=name,
        title=title,
        role="metric",
        meaning=meaning,
        units=PERCENT,
        better="higher",
        when=when,
        low=0.0,
        high=1.0,
    )


def _error(name: str, meaning: str, when: str) -> Field:
    """A metric that is better the lower it is."""
    return Field(name=name, title=name.replace("_", " "), role="metric", meaning=meaning, better="lower", when=when)


def _over_clients(name: str, meaning: str, when: str) -> Iterator[Field]:
    """An accuracy of each client's own test set: its mean, spread and minimum over clients."""
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
        meaning="its mean over the clients without noise",
        when=f"{when}, and some clients have noise",
    )


_EVALUATED = "evaluated"

FIELDS: tuple[Field, ...] = (
    Field(name="round", title="round", role="label", meaning="the round's number, from 1"),
    _count("cohort", "clients asked", "neither", "distinct clients asked in any exchange of the round"),
    _count("reported", "clients that reported", "higher", "clients whose answers were all accepted"),
    _count("dropped", "dropped clients", "lower", "clients asked whose answers do not count: `cohort` - `reported`"),
    _count("rejected", "rejected clients", "lower", "distinct clients with a rejected answer", "there are any"),
    _count("late", "late clients", "lower", "distinct clients whose answers came too late", "there are any"),
    _count("declined", "clients that declined", "lower", "clients that declined the work", "there are any"),
    _count("void", "void rounds", "lower", "true: the round left the state unchanged", "nobody answered"),
    _setting("learning_rate", "the clients' step size"),
    _setting("server_learning_rate", "the server's step size", "the algorithm has one"),
    _setting("num_local_steps", "steps of each client, as scheduled", "clients train by steps"),
    _setting("num_local_epochs", "epochs of each client, as scheduled", "clients train by epochs"),
    _cost("messages", "messages", NUMBER, "requests and answers", to_target=False),
    _cost("bytes_down", "download", BYTES, "bytes to all clients, as encoded"),
    _cost("bytes_up", "upload", BYTES, "bytes from all clients, as encoded"),
    _cost("bytes_backhaul", "backhaul", BYTES, "bytes between the servers of cells; 0 without cells", to_target=False),
    _cost("local_steps", "local steps", NUMBER, "steps of all clients"),
    _cost("flops", "compute", FLOPS, "floating point operations of all clients"),
    _cost("sim_seconds", "edge time", SECONDS, "simulated seconds of the round"),
    _cost("energy_j", "energy", JOULES, "joules used by all clients to compute and to send"),
    _time("sim_down_s", "edge time of downloads", "the part of `sim_seconds` spent on downloads"),
    _time("sim_compute_s", "edge time of computing", "the part of `sim_seconds` spent on local training"),
    _time("sim_up_s", "edge time of uploads", "the part of `sim_seconds` spent on uploads"),
    _time("sim_wait_s", "edge time of waiting", "the part of `sim_seconds` spent waiting"),
    _time("seconds", "real time", "real seconds, including the evaluation"),
    _label("clock", "`simulated` or `measured`: what the seconds are"),
    _label("evaluated_at", "`server` or `clients`: where the model was evaluated", _EVALUATED),
    Field(
        name="evaluated_clients",
        title="clients that evaluated",
        role="count",
        meaning="clients whose test sets were measured",
        better="higher",
        when="evaluated by clients",
    ),
    _accuracy("accuracy", "CA, of the global model on the pooled test set", "evaluated, classification"),
    _error("loss", "loss of the global model on the pooled test set", _EVALUATED),
    *_over_clients("user_accuracy", "UA, on each client's own test set", "evaluated, with `evaluate.user_accuracy`"),
    *_over_clients(
        "user_accuracy_after", "UA after a round's local training", "evaluated, with `evaluate.after_training`"
    ),
    _accuracy(
        "validation_accuracy", "of the global model on the validation split", "evaluated, with `data.validation`"
    ),
    _error("validation_loss", "loss of the global model on the validation split", "evaluated, with `data.validation`"),
    _error("train_loss", "mean loss of the clients' first minibatches", "a client has trained"),
    _accuracy("train_accuracy", "of the global model on all training data", "evaluated, with `evaluate.train`"),
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
    Field(name="rounds", title="rounds", role="count", meaning="rounds done", better="lower", to_target=True),
    _label("ended_by", "`rounds`, `target`, `patience`, `callback`, or the budget that is used up, such as `bytes_up`"),
)
"""Fields of a run's summary that no round has."""

SUMS = {"bytes": ("bytes_up", "bytes_down")}
"""Names for the sum of several fields."""

COSTS: tuple[str, ...] = tuple(field.name for field in FIELDS if field.role == "cost")
"""What a round costs; a run has paid the sum of its rounds."""
COSTS_TO_TARGET: tuple[str, ...] = tuple(field.name for field in FIELDS if field.to_target)
AXES: tuple[str, ...] = (
    "round",
    *(field.name for field in FIELDS if field.total == "sum" and not field.when),
)
"""What a curve may be drawn over: rounds, or the sum so far of a field that every round has."""

_DECLARED = {field.name: field for field in (*FIELDS, *SUMMARY_FIELDS)}

OwnFields = Mapping[str, Field]
"""The fields that `evaluate.metrics` adds to those of every run, by name."""
NO_OWN_FIELDS: OwnFields = MappingProxyType({})


def is_taken(name: str) -> bool:
    """Whether a name already stands for a field of every run, or is made from one: no metric may have it."""
    prefixes = (VALIDATION, "best_", "mean_", "median_")
    return name in _DECLARED or name in SUMS or name.startswith(prefixes) or is_to_target(name)


def describe(name: str, own: OwnFields = NO_OWN_FIELDS) -> Field:
    """Return the declaration of a field, or of a name made from one.

    `best_x`, `mean_x` and `median_x` (over rounds), `x_to_target` and sums such as `bytes` derive from the declared
    fields, and from `own`, those of a run's own metrics. Any other name gets a neutral declaration: a plain number of
    which neither way is better.
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
        return replace(base, name=name, title=f"{prefix} {base.title} of a round", total="last")
    if is_to_target(name) and (base := describe(name.removesuffix(TO_TARGET))).to_target:
        return replace(base, name=name, title=f"{base.title} to target")
    return Field(name=name, title=name.replace("_", " "), role="metric", meaning="")


def measured_on(metric: str) -> Literal["validation split", "test set"]:
    """Which data a metric that runs are judged by is measured on: of the two, only the former may decide anything."""
    return "validation split" if metric.startswith(VALIDATION) else "test set"


def is_to_target(name: str) -> bool:
    """Whether a name stands for a cost to the target, which is absent where the target was not reached."""
    return name.endswith(TO_TARGET)


def components(name: str) -> tuple[str, ...]:
    """Return the recorded names whose values add up to this one: `bytes_to_target` is that of uploads and downloads."""
    base = name.removesuffix(TO_TARGET)
    return tuple(part + name[len(base) :] for part in SUMS[base]) if base in SUMS else (name,)


def fitting(units: Sequence[Unit], largest: float) -> Unit:
    """Return the largest unit of which the largest value to be shown has at least two, or one of a base unit.

    A base unit is that of the records, of size 1, such as seconds: smaller ones are for values below 1 only, not for 0.
    """
    least = next((unit for unit in units if unit.size == 1), units[0]) if largest <= 0 else units[0]
    return next((unit for unit in reversed(units) if largest >= unit.size * (2 if unit.size > 1 else 1)), least)


def titled(title: str, unit: Unit) -> str:
    """`upload (MB)`, or the title alone where there is no unit."""
    return f"{title} ({unit.name})" if unit.name else title
