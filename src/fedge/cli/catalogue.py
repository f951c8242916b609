"""The available models, data sets, algorithms and so on, as data and formatted for a terminal."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Any, cast

import torch
from msgspec import Struct
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedge.algorithms import ALGORITHMS
from fedge.cli.options import description, options, summary, title
from fedge.core.codecs.chain import CODECS
from fedge.core.codecs.quantise import QuantiserStage
from fedge.core.errors import ConfigError, ModelError
from fedge.core.layout import Layout
from fedge.core.parts import own_entries
from fedge.core.schema import choose, tag
from fedge.data import DATASETS, PARTITIONS
from fedge.edge.selection import SELECTIONS
from fedge.metrics import METRIC_KINDS
from fedge.models import MODELS
from fedge.schedules import SCHEDULES

_KINDS = {
    "models": MODELS,
    "datasets": DATASETS,
    "algorithms": ALGORITHMS,
    "partitioners": PARTITIONS,
    "schedules": SCHEDULES,
    "metrics": METRIC_KINDS,
    "selections": SELECTIONS,
}
"""Option structs per part; codecs are written as words and have no structs."""

SHAPES = ((1, 28, 28), (3, 32, 32))
"""Input shapes for counting a model's parameters: the first shape that the model accepts is used."""
NUM_OUTPUTS = 10


def listing(part: str) -> list[dict[str, Any]]:
    """Return a brief entry for each member of a part; those from installed packages come last."""
    known = [_stage(name) for name in CODECS] if part == "codecs" else [brief(kind) for kind in _kinds(part)]
    names = {entry["name"].partition("(")[0] for entry in known}
    return known + [_offered(entry, names, part) for entry in own_entries(_kinds(part))]


def names_of(part: str) -> list[str]:
    """Return the names of all members of a part."""
    return list(CODECS) if part == "codecs" else [title(kind) for kind in _kinds(part)]


def describe(part: str, name: str) -> dict[str, Any]:
    """Return the full entry of one member of a part; raise a ConfigError if the name is unknown."""
    if part != "codecs":
        return full(choose(name, _kinds(part), part))
    stage = name.partition("(")[0].strip()
    return _stage(stage) if stage in CODECS else full(choose(stage, _kinds(part), part, known=CODECS))


def brief(kind: type[Struct]) -> dict[str, Any]:
    """Return the entry of a kind as a list shows it."""
    return {"name": title(kind), "description": summary(kind)} | _size(kind)


def full(kind: type[Struct]) -> dict[str, Any]:
    """Return the entry of a kind with its whole description and its options."""
    entry = {"name": title(kind), "description": description(kind)} | _size(kind)
    return entry | {"options": [option._asdict() for option in options(kind)]}


def table(entries: Sequence[Mapping[str, Any]]) -> Table:
    """Return a list of entries as a table for a terminal."""
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    shown.add_column("name", no_wrap=True)
    if measured := any("num_params" in entry for entry in entries):
        shown.add_column("parameters", justify="right", no_wrap=True)
        shown.add_column("input", no_wrap=True)
    shown.add_column("description")
    for entry in entries:
        size = [_count(entry), _shape(entry)] if measured else []
        shown.add_row(Text(entry["name"]), *size, Text(entry["description"]))
    return shown


def page(entry: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield one full entry, formatted for a terminal."""
    yield Text(entry["name"], style="bold")
    yield Group(Text(entry["description"]))  # wraps at words, unlike plain text
    if "num_params" in entry:
        yield Text(f"{_count(entry)} trainable parameters for inputs {_shape(entry)} and {NUM_OUTPUTS} outputs")
    if "options" not in entry:
        return
    yield ""
    if not entry["options"]:
        yield "no options"
        return
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in ("option", "type", "default", "meaning"):
        shown.add_column(column, overflow="fold")
    for option in entry["options"]:
        default = "required" if option["required"] else option["default"] or "–"
        shown.add_row(*map(Text, (option["name"], option["type"], default, option["meaning"])))
    yield shown


def _kinds(part: str) -> tuple[type[Struct], ...]:
    return (QuantiserStage,) if part == "codecs" else cast("tuple[type[Struct], ...]", _KINDS[part])


def _offered(entry: EntryPoint, built_in: Container[str], part: str) -> dict[str, Any]:
    """Return the entry of an entry point of an installed package, or the reason why it cannot be used."""
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.module
    if entry.name in built_in:
        return {"name": entry.name, "description": f"ignored: {package} uses the name of a built-in"}
    try:
        found = brief(choose(entry.name, _kinds(part), part))
    except ConfigError as error:
        return {"name": entry.name, "description": f"error: {error}"}
    return found | {"description": f"{found['description']} ({package})"}


def _stage(name: str) -> dict[str, Any]:
    """Return the entry of a codec stage; its name shows how to write it in an experiment file."""
    usage, _, meaning = CODECS[name].partition(": ")
    return {"name": usage, "description": meaning}


def _size(kind: type[Struct]) -> dict[str, Any]:
    """Return the parameter count of a model and the input shape; empty for other kinds and user-defined models."""
    if kind not in MODELS or tag(kind) is None:
        return {}
    for shape in SHAPES:
        try:
            with torch.device("meta"):  # counts parameters without initialising them
                module = cast(Any, kind)().build(shape, NUM_OUTPUTS)
        except ModelError:
            continue
        return {"num_params": Layout.of(module).num_params, "shape": shape}
    return {}


def _count(entry: Mapping[str, Any]) -> str:
    return f"{entry['num_params']:,}" if "num_params" in entry else "–"


def _shape(entry: Mapping[str, Any]) -> str:
    return "x".join(map(str, entry["shape"])) if "shape" in entry else "–"
