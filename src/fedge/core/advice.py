"""Suggestions for unknown keys and invalid values in a configuration: synonyms, units, lists, tables."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from msgspec import Meta

_SYNONYMS = {
    "alpha": "data.partition.alpha",
    "batch": "algorithm.batch_size",
    "batchsize": "algorithm.batch_size",
    "bs": "algorithm.batch_size",
    "client_fraction": "selection.fraction",
    "client_lr": "algorithm.learning_rate",
    "clients": "data.clients",
    "clients_per_round": "selection.count",
    "cohort_size": "selection.count",
    "communication_rounds": "rounds",
    "data_dir": "data.dir",
    "dataset": "data.name",
    "dropout_rate": "edge.dropout",
    "epochs": "algorithm.local_epochs",
    "eta": "algorithm.learning_rate",
    "eval_every": "evaluate.every",
    "fraction_fit": "selection.fraction",
    "gpu": "engine.device",
    "iterations": "algorithm.local_steps",
    "local_lr": "algorithm.learning_rate",
    "lr": "algorithm.learning_rate",
    "mu": "algorithm.prox",
    "n_clients": "data.clients",
    "n_rounds": "rounds",
    "num_clients": "data.clients",
    "num_epochs": "algorithm.local_epochs",
    "num_local_epochs": "algorithm.local_epochs",
    "num_local_steps": "algorithm.local_steps",
    "num_rounds": "rounds",
    "num_steps": "algorithm.local_steps",
    "num_workers": "engine.workers",
    "optimizer": "algorithm.optimiser",
    "participation": "selection.fraction",
    "precision": "engine.dtype",
    "random_seed": "seed",
    "seed_value": "seed",
    "selection.clients": "selection.count",
    "selection.num_clients": "selection.count",
    "selection.size": "selection.count",
    "server_lr": "algorithm.server_learning_rate",
    "split": "data.partition",
    "step_size": "algorithm.learning_rate",
    "steps": "algorithm.local_steps",
    "threads": "engine.workers",
    "total_clients": "data.clients",
    "wd": "algorithm.weight_decay",
    "workers": "engine.workers",
}
"""Names that other tools and papers use, each with the corresponding setting here."""

_NOTES = {"model": 'for a network of another size, write a function: model.name="my_file.py:build"'}

FORM: Final = "form"
"""Key in the `extra` of an option's `Meta`: a description of the option's pattern in words."""

_NUMBER = re.compile(r"([-+]?[\d_]*\.?\d+(?:[eE][-+]?\d+)?)\s*(%|[A-Za-zµ/][\w/ ]*)")
_SWITCHES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def meant(key: str, path: str, below: Mapping[str, Collection[str]]) -> str | None:
    """Return the setting that an unknown key of the table at `path` probably means; None if there is no suggestion.

    `below` maps each key of the table to the keys of its own sub-tables.
    """
    word = key.lower().replace("-", "_").replace(" ", "_")
    setting = _SYNONYMS.get(f"{path}.{word}") or _SYNONYMS.get(word)
    if setting is not None:
        table, _, own = setting.rpartition(".")
        if table == path and own not in (*below, "name"):
            return None  # another kind of this table has that setting, this one does not
        return own if own in below and table == path else setting
    return next((f"{name}.{word}" for name, keys in below.items() if word in keys), None)


def is_misspelt(key: str, known: Collection[str]) -> bool:
    """Whether a key differs from a known key by one or two letters."""
    return bool(get_close_matches(key.lower(), known, n=1, cutoff=0.85))


def synonym(path: str) -> str:
    """Return the setting for which the last part of a path is a synonym, or the path itself."""
    return _SYNONYMS.get(path) or _SYNONYMS.get(path.rpartition(".")[2], path)


def note(path: str) -> str:
    """Return an additional hint about unknown keys of the table at a path; empty if there is none."""
    return f"; {_NOTES[path]}" if path in _NOTES else ""


def replacement(raw: object, kind: object, path: str) -> str:
    """Return `; ` and a suggested replacement for a value of the wrong type; empty if there is none."""
    found = next(filter(None, (rule(raw, kind, path) for rule in _RULES)), None)
    return f"; {found}" if found else ""


def expectation(kind: object) -> str | None:
    """Return what a field with a fixed set of words or a text pattern expects; None for other fields."""
    if found := words(kind):
        return f"expected one of {', '.join(map(repr, found))}{', or a list' if takes(kind, list) else ''}"
    notes = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    forms = (note.extra.get(FORM) for note in notes if isinstance(note, Meta) and note.extra)
    return next((f"expected {form}" for form in forms if form), None)


def words(kind: object) -> list[str]:
    """Return the literal strings that a field accepts."""
    return [word for part in parts(kind) if get_origin(part) is Literal for word in get_args(part)]


def takes(kind: object, *wanted: object) -> bool:
    """Whether a field accepts one of these types."""
    return any(part in wanted or get_origin(part) in wanted for part in parts(kind))


def without_fraction(raw: object) -> object:
    """Return the value with every whole-number float converted to an integer: 1e3 becomes 1000."""
    if isinstance(raw, float) and raw.is_integer():
        return int(raw)
    return [without_fraction(inner) for inner in raw] if isinstance(raw, list) else raw


def parts(kind: object) -> list[Any]:
    """Return the types that a field accepts, without their annotations: one, or those of a union."""
    if get_origin(kind) is Annotated:
        return parts(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return [part for inner in get_args(kind) for part in parts(inner)]
    return [kind]


def _several(raw: object, kind: object, path: str) -> str | None:
    a_range = isinstance(raw, Mapping) and {"start", "stop"} & set(raw) and takes(kind, int, float)
    if not a_range and (not isinstance(raw, list) or takes(kind, list)):
        return None
    return "to repeat a run, set seeds" if path == "seed" else "`fedge sweep` runs a file with several values"


def _single(raw: object, kind: object, path: str) -> str | None:
    if isinstance(raw, (list, Mapping)) or not takes(kind, list) or words(kind):
        return None
    if path == "seeds":
        return f"write seeds=[1, 2, 3], or seed={raw}"
    return f"write {path}={_toml([raw])}"


def unitless(raw: object, kind: object, path: str) -> str | None:
    """Return how to write a number given with a unit, a percent sign or a decimal comma; None for other values."""
    if not isinstance(raw, str) or not takes(kind, int, float):
        return None
    if re.fullmatch(r"-?\d+,\d+", raw):
        return f"write {path}={raw.replace(',', '.')}"
    found = _NUMBER.fullmatch(raw.strip())
    if found is None:
        return None
    number, unit = found.groups()
    if unit == "%":
        return f"write {path}={float(number) / 100:g}"
    return f"drop the unit {unit!r}: {path}={number}"


def _whole(raw: object, kind: object, path: str) -> str | None:
    if not isinstance(raw, float) or raw.is_integer() or not takes(kind, int):
        return None
    return "write a whole number"


def _switch(raw: object, kind: object, path: str) -> str | None:
    if not isinstance(raw, str) or not takes(kind, bool) or raw.lower() not in _SWITCHES:
        return None
    return f"write {path}={str(_SWITCHES[raw.lower()]).lower()}"


def _quoted(raw: object, kind: object, path: str) -> str | None:
    """Suggest quotes for a number or boolean where text is expected."""
    if isinstance(raw, (list, Mapping, str)) or not takes(kind, str):
        return None
    return f"write it in quotes: {path}={_toml(str(raw))}"


def _cleaned(raw: object, kind: object, path: str) -> str | None:
    """Suggest a valid name for text that does not match a name pattern."""
    notes = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    patterns = [note.pattern for note in notes if isinstance(note, Meta) and note.extra and FORM in note.extra]
    if not isinstance(raw, str) or not patterns or not patterns[0]:
        return None
    cleaned = re.sub(r"[^A-Za-z0-9._+-]+", "-", raw).strip("-._+")
    return f"write {path}={cleaned}" if re.match(patterns[0], cleaned) and cleaned != raw else None


_RULES: Sequence[Callable[[object, object, str], str | None]] = (
    _several,
    _single,
    unitless,
    _whole,
    _switch,
    _quoted,
    _cleaned,
)


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return '"' + value + '"' if isinstance(value, str) else str(value)
