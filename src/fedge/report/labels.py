"""Display names of settings, values, axes and groups of runs, for tables, charts and pages.

A group of runs is labelled by the settings that distinguish it: `FedAvg, η = 0.1, K = 2`. `DisplayNames` also holds the
user's names (`fedge plot --label KEY=TEXT`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedge.core.effect import settings
from fedge.core.errors import ConfigError, nearest
from fedge.core.fields import Field, Unit, titled
from fedge.core.parts import short_name

ALGORITHMS = {
    "ce_fedavg": "CE-FedAvg",
    "dsgd": "DSGD",
    "dynavg": "DynAvg",
    "dynavg_loss": "DynAvg-Loss",
    "dynavg_svd": "DynAvg-SVD",
    "fedadam": "FedAdam",
    "fedadam_kdecay": "FedAdam, K decay",
    "fedavg": "FedAvg",
    "fedavg_adam": "FedAvg-Adam",
    "fedgbo": "FedGBO",
    "fedmax": "FedMAX",
    "fedopt": "FedOpt",
    "fedprox": "FedProx",
    "fedsgd": "FedSGD",
    "independent": "Independent",
    "mfl": "MFL",
    "mimelite": "Mimelite",
    "mimexlite": "MimeXlite",
    "per_fedavg": "Per-FedAvg",
    "periodic": "Periodic",
    "pfedme": "pFedMe",
    "scaffold": "SCAFFOLD",
}
"""The algorithms' names in papers."""

ALGORITHM = "algorithm.name"

_SYMBOLS = {
    "algorithm.learning_rate": "η",
    "algorithm.server_learning_rate": "server η",
    "algorithm.local_steps": "K",
    "algorithm.local_epochs": "E",
    "algorithm.batch_size": "B",
    "algorithm.prox": "μ",
    "algorithm.beta": "β",
    "algorithm.beta2": "β2",
    "algorithm.epsilon": "ε",
    "selection.fraction": "C",
    "selection.count": "m",
    "data.clients": "N",
    "data.partition.alpha": "α",
    "rounds": "T",
}
"""The symbols of common settings in papers."""

_TITLES = {
    ALGORITHM: "algorithm",
    "model.name": "model",
    "data.name": "data set",
    "data.partition.name": "partition",
    "algorithm.server_learning_rate": "server learning rate η",
    "algorithm.prox": "proximal term μ",
    "selection.fraction": "client fraction C",
    "selection.count": "clients per round m",
    "data.clients": "clients N",
    "data.partition.alpha": "Dirichlet parameter α",
}
"""Longer names for axes and table headings, if key and symbol do not suffice."""

_UNITS = {"s": "s", "hz": "Hz", "w": "W", "j": "J", "m": "m", "mbps": "Mbit/s", "bits": "bits", "bytes": "bytes"}
"""The units that the suffixes of keys stand for."""

_SEPARATOR = re.compile(r"(?<! )=(?! )")  # of `--label KEY=TEXT`, where KEY may be the label `η = 0.1`


class DisplayNames:
    """The names of axes, settings, values and groups; the user's names replace built-in ones.

    A key of `given` is `x` or `y` (an axis), a field such as `accuracy`, a setting such as `algorithm.local_steps` or
    just `local_steps`, a value as displayed or as in the configuration (`fedavg`), or the whole label of a group.
    """

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._given = dict(given or {})
        self._known: set[str] = set()

    def check(self) -> None:
        """Raise a ConfigError if a given key named nothing in the chart. Call it when the chart is complete."""
        for key in self._given:
            if key not in self._known:
                known = "; ".join(sorted(self._known))  # the name of a group has commas
                raise ConfigError(f"label: the chart has no {key!r}{nearest(key, self._known)}; it has: {known}")

    def axis(self, which: str, declared: Field, unit: Unit) -> str:
        """Return the title of an axis, with its unit unless the user gave the whole title as `x` or `y`."""
        return self._choose(titled(self._choose(declared.title, declared.name), unit), which)

    def axis_text(self, which: str, text: str) -> str:
        """Return the title of an axis without a single field: the user's title for `x` or `y`, by default this text."""
        return self._choose(text, which)

    def field(self, declared: Field) -> str:
        """Return the title of a field."""
        return self._choose(declared.title, declared.name)

    def setting(self, path: str) -> str:
        """Return the title of a setting: `learning rate η`, `bandwidth (Hz)`."""
        return self._choose(_title(path), path, _key(path))

    def symbol(self, path: str) -> str:
        """Return the shortest name of a setting: `η`, `weight decay`."""
        return self._choose(_SYMBOLS.get(path, _key(path).replace("_", " ")), path, _key(path))

    def values(self, path: str, values: Sequence[Any]) -> list[str]:
        """Return the values of a setting as text, with just enough digits to distinguish different values."""
        texts = _written(path, values)
        return [self._choose(text, text, str(value)) for text, value in zip(texts, values, strict=True)]

    def assignments(self, path: str, values: Sequence[Any]) -> list[str]:
        """Return `η = 0.1` for each value of a setting; for settings that are names, the value alone."""
        symbol, texts = self.symbol(path), self.values(path, values)
        if _key(path) == "name":
            return texts
        written = zip(texts, values, strict=True)
        return [f"{symbol} not set" if value is None else f"{symbol} = {text}" for text, value in written]

    def group(self, label: str) -> str:
        """Return the label of a group; the user's, if given."""
        return self._choose(label, label)

    def _choose(self, text: str, *keys: str) -> str:
        self._known.update(keys)
        return next((self._given[key] for key in keys if key in self._given), text)


class GroupName(NamedTuple):
    """The label of a group, its parts, and its position among the groups.

    `parts` has the text for each distinguishing setting, and the experiment's name under `name`.
    """

    label: str
    parts: Mapping[str, str]
    order: tuple[tuple[bool, float, int], ...]


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    """Return the keys and texts of `--label KEY=TEXT`, separated by the first `=` without a space next to it."""
    found = {}
    for text in texts:
        key, *rest = _SEPARATOR.split(text, maxsplit=1)
        if not key or not rest:
            raise ConfigError(f"--label: expected KEY=TEXT, such as 'accuracy=test accuracy', got {text!r}")
        found[key] = rest[0]
    return found


def label_configurations(configs: Sequence[Mapping[str, Any]], labels: DisplayNames) -> list[GroupName]:
    """Label configurations by their experiment's name, and those with equal names by the settings in which they differ.

    The experiment's name is dropped if all configurations share it and their settings distinguish them. A name that
    only repeats settings, as in sweeps (`fedavg+learning_rate-0.1`), is ignored.
    """
    rows = [dict(settings(config)) for config in configs]
    found = _label(rows, [_settings_in_name(row) for row in rows], labels)
    if len({name.label for name in found}) < len(found):  # only the names differ
        found = _label(rows, [[] for _ in rows], labels)
    seen: set[str] = set()
    for name in found:
        if name.label in seen:
            raise ConfigError(f"label: two groups of runs would be called {name.label!r}; give them different texts")
        seen.add(name.label)
    return found


def _label(rows: Sequence[Mapping[str, Any]], in_name: Sequence[list[str]], labels: DisplayNames) -> list[GroupName]:
    """Label flat configurations; `in_name` has the settings that the experiment's name consists of."""
    names = ["" if paths else str(row.get("name", "unnamed")) for row, paths in zip(rows, in_name, strict=True)]
    alike: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        alike.setdefault(name, []).append(i)
    found: dict[int, GroupName] = {}
    for name, places in alike.items():
        own = [rows[i] for i in places]
        chosen = _distinguishing(own) if len(own) > 1 else in_name[places[0]]
        drop = not name or (chosen and len(alike) == 1)
        prefix = {} if drop else {"name": labels.values("name", [name])[0]}
        for i, named in zip(places, label_rows(own, chosen, labels), strict=True):
            label = ": ".join(filter(None, [*prefix.values(), named.label]))
            place = (False, float(places[0]), 0)
            found[i] = GroupName(labels.group(label), prefix | dict(named.parts), (place, *named.order))
    return [found[i] for i in range(len(rows))]


def _settings_in_name(row: Mapping[str, Any]) -> list[str]:
    """Return the settings in the parts of a sweep's name; none if the name contains anything else."""
    kinds = {short_name(str(value)): path for path, value in row.items() if path.endswith(".name")}
    *parts, last = str(row.get("name", "")).split("+")
    if not parts or not re.fullmatch(r"[0-9]+|[0-9a-f]{8}", last):  # ends names that are long or not unique
        parts.append(last)
    found = []
    for part in parts:
        key, _, value = part.partition("-")
        named = [path for path, own in row.items() if own is not None and key in (path, _key(path)) and value]
        named.sort(
            key=lambda path: f"{row[path]:.4g}" != value if isinstance(row[path], float) else str(row[path]) != value
        )
        path = kinds.get(part) or kinds.get(part.partition(".")[0]) or next(iter(named), None)
        if path is None:
            return []
        found.append(path)
    return found


def label_rows(rows: Sequence[Mapping[str, Any]], paths: Sequence[str], labels: DisplayNames) -> list[GroupName]:
    """Label flat configurations by these settings; unset ones are left out if the others suffice."""
    columns = {path: [row.get(path) for row in rows] for path in paths}
    texts = {path: labels.assignments(path, values) for path, values in columns.items()}
    short = [", ".join(texts[path][i] for path in paths if columns[path][i] is not None) for i in range(len(rows))]
    full = [", ".join(texts[path][i] for path in paths) for i in range(len(rows))]
    written = short if len(set(short)) == len(set(full)) and all(short) else full
    orders = {path: _order(values) for path, values in columns.items()}
    return [
        GroupName(
            written[i],
            {path: texts[path][i] for path in paths},
            tuple(orders[path][str(row.get(path))] for path in paths),
        )
        for i, row in enumerate(rows)
    ]


def sorted_values(values: Iterable[Any]) -> list[Any]:
    """Return the distinct values: numbers in ascending order, then all others in order of appearance."""
    unique = list({str(value): value for value in values}.values())
    order = _order(unique)
    return sorted(unique, key=lambda value: order[str(value)])


def _order(values: Sequence[Any]) -> dict[str, tuple[bool, float, int]]:
    """Return the position of each value, by its text: numbers ascending, then others in order of appearance."""
    places: dict[str, tuple[bool, float, int]] = {}
    for i, value in enumerate(values):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        places.setdefault(str(value), (not number, float(value) if number else 0.0, 0 if number else i))
    return places


def _distinguishing(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return as few settings as distinguish these configurations, the algorithm's first."""
    paths = list(dict.fromkeys(path for row in rows for path in row if path != "name"))
    paths.sort(key=lambda path: (path != ALGORITHM, not path.startswith("algorithm.")))
    chosen: list[str] = []
    parts: list[tuple[str, ...]] = [()] * len(rows)
    for path in paths:
        more = [(*part, str(row.get(path))) for part, row in zip(parts, rows, strict=True)]
        if len(set(more)) > len(set(parts)):
            parts = more
            chosen.append(path)
    return chosen


def _key(path: str) -> str:
    return path.rpartition(".")[2]


def _title(path: str) -> str:
    if path in _TITLES:
        return _TITLES[path]
    words, _, last = _key(path).rpartition("_")
    if words and last in _UNITS:
        return f"{words.replace('_', ' ')} ({_UNITS[last]})"
    name = path.removesuffix(".name").rpartition(".")[2].replace("_", " ")
    return f"{name} {_SYMBOLS[path]}" if path in _SYMBOLS else name


def _written(path: str, values: Sequence[Any]) -> list[str]:
    """Return values as text; different values have different texts."""
    distinct = len({str(value) for value in values})
    for digits in range(3, 18):
        texts = [_write(path, value, digits) for value in values]
        if len(set(texts)) == distinct:
            return texts
    return [str(value) for value in values]


def _write(path: str, value: Any, digits: int) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        exact = f"{value:.6g}"
        return exact if float(exact) == value and len(exact) <= 7 else f"{value:.{digits}g}"
    if isinstance(value, list):
        return ", ".join(_write(path, part, digits) for part in value) or "none"
    if isinstance(value, str) and _key(path) == "name":
        return ALGORITHMS.get(value, short_name(value)) if path == ALGORITHM else short_name(value)
    return str(value)
