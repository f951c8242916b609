"""All runs as one table: `fedge.load("runs/")`.

Needs pandas or polars (the extra `table`), which is imported on first use.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedge.core.effect import settings
from fedge.core.errors import ConfigError, FedgeError, RunError
from fedge.core.printable import printable
from fedge.report.collect import damage
from fedge.report.columns import read_rounds
from fedge.report.groups import group_runs
from fedge.report.mean_curve import ROUNDS_OF_MEAN, rounds_of_mean
from fedge.runs import Run, find_runs
from fedge.runs.files import encode

What = Literal["rounds", "summary"]
_ROUNDS = "rounds_to_target"


def load(runs: str | Path | Run | Iterable[str | Path | Run] = "runs", what: What = "rounds") -> Any:
    """Return runs, or those at paths, as a table: one row per round, or with what="summary" one per run.

    The columns are the run's path, its settings by path, such as `algorithm.learning_rate`, and the recorded fields; a
    row per run also has `rounds_to_target_of_mean`, the round in which the mean over its seeds reached the target. A
    setting with the name of a result gets the prefix `config.`; a setting that no run sets is left out. The table is a
    pandas DataFrame, or a polars one if pandas is not installed. Directories that cannot be read are left out with a
    warning.
    """
    sources = [runs] if isinstance(runs, str | Path | Run) else list(runs)
    parts = [[source] if isinstance(source, Run) else find_runs(Path(source)) for source in sources]
    found = list({run.path: run for part in parts for run in part}.values())
    where = ", ".join(str(source.path if isinstance(source, Run) else source) for source in sources)
    problems = [run.problem for run in found]
    try:
        return _warned_frame(where, found, problems, what)
    except RunError:  # damage before the end of the records; checking all of them first would read them twice
        return _warned_frame(where, found, [damage(run, lambda run: run.rounds) for run in found], what)


def _warned_frame(where: str, runs: Sequence[Run], problems: Sequence[str | None], what: What) -> Any:
    """Return the readable runs as a table, and warn about each of the others."""
    readable = [run for run, problem in zip(runs, problems, strict=True) if problem is None]
    if not readable:
        raise RunError(f"no runs in {where or 'an empty list'}; start one with `fedge run FILE`")
    table = frame(readable, what)
    for problem in filter(None, problems):
        warnings.warn(f"left out: {problem}", stacklevel=3)
    return table


def frame(runs: Sequence[Run], what: What = "rounds", to_target: bool = False) -> Any:
    """Return these runs as a table; with `to_target`, rows per round also have the rounds to target."""
    if what not in ("rounds", "summary"):
        raise ConfigError(f'what: expected "rounds" or "summary", got {what!r}')
    make = _maker()
    lengths: Sequence[int]
    results: Mapping[str, Any]
    if what == "rounds":
        lengths, results = read_rounds(runs)
    else:
        rows = [{"status": run.status, **(run.summary or {})} for run in runs]
        lengths, results = [1] * len(runs), _columns(_with_mean(runs, rows))
    described = _columns([dict(settings(run.config)) for run in runs])
    described = {f"config.{name}" if name in results else name: values for name, values in described.items()}
    if to_target:
        reached = [{_ROUNDS: (run.summary or {}).get(_ROUNDS)} for run in runs]
        described |= _columns(_with_mean(runs, reached))
    return make({"run": [printable(str(run.path)) for run in runs], **described}, lengths, results)


def _with_mean(runs: Sequence[Run], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows per run, each with the round in which the mean over its seeds reached the target."""
    of_mean = {id(run): rounds_of_mean(group) for group in group_runs(runs) for run in group.runs}
    return [{**row, ROUNDS_OF_MEAN: of_mean.get(id(run))} for run, row in zip(runs, rows, strict=True)]


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for row in rows for name, value in row.items() if value is not None)
    return {name: [_cell(row.get(name)) for row in rows] for name in names}


def _cell(value: Any) -> Any:
    """Return lists and empty tables as JSON, because a cell holds one value."""
    return encode(value).decode() if isinstance(value, list | dict) else value


def _maker() -> Any:
    for module, make in (("pandas", _pandas), ("polars", _polars)):
        if find_spec(module) is not None:
            return make
    raise FedgeError("a table needs pandas or polars, and neither is installed; pip install 'fedge[table]'")


def _pandas(described: Mapping[str, list[Any]], lengths: Sequence[int], results: Mapping[str, Any]) -> Any:
    pandas = import_module("pandas")
    columns = {name: _repeated(pandas, values, lengths) for name, values in described.items()}
    return pandas.DataFrame(columns | dict(results), copy=False)


def _repeated(pandas: Any, values: list[Any], lengths: Sequence[int]) -> Any:
    """Return numbers unchanged, and texts as categories: a million rows then store only their codes."""
    plain = pandas.Series(values)
    if plain.dtype.kind in "ifb":
        return np.repeat(plain.to_numpy(), lengths)
    return pandas.Categorical.from_codes(*pandas.factorize(plain)).repeat(lengths)


def _polars(described: Mapping[str, list[Any]], lengths: Sequence[int], results: Mapping[str, Any]) -> Any:
    polars = import_module("polars")
    row_of = np.repeat(np.arange(len(lengths)), lengths)
    columns = {name: polars.Series(name, values, strict=False).gather(row_of) for name, values in described.items()}
    measured = {name: polars.Series(name, values, strict=False) for name, values in results.items()}
    return polars.DataFrame(
        columns
        | {name: values.fill_nan(None) if values.dtype.is_float() else values for name, values in measured.items()}
    )
