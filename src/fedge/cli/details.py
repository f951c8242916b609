"""One run in full, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fedge.core.fields import Field, OwnFields, describe, fitting, is_to_target, measured_on, titled
from fedge.core.lent import PYTHON
from fedge.core.parts import short_name
from fedge.report.edge_rates import edge_note
from fedge.runs import Run

NUM_ROUNDS = 10
"""How many of the last rounds are shown."""

_FIELDS = (
    "accuracy",
    "user_accuracy",
    "loss",
    "train_loss",
    "bytes_up",
    "bytes_down",
    "sim_seconds",
    "seconds",
    "void",
)
_AFTER = _FIELDS.index("train_loss")  # where a run's own metrics stand


def details(run: Run) -> Iterator[RenderableType]:
    """Yield a run's name and status, its results, and its last rounds."""
    name, algorithm = run.config.get("name"), run.config.get("algorithm", {}).get("name")
    yield Text(f"{name}: {short_name(str(algorithm))}, {run.status}, {run.path}", style="bold")
    for part in ("model", "data"):
        settings = run.config.get(part)
        if isinstance(settings, Mapping) and settings.get("name") == PYTHON:
            yield Text(f"{part}: {settings.get('type')}, which only the Python program that started the run has")
    if run.summary is not None:
        yield ""
        yield _summary(run.summary, run.own_fields)
    if run.rounds:
        yield ""
        yield _rounds(run.rounds[-NUM_ROUNDS:], run.own_fields)
    if (run.summary or run.rounds) and (note := edge_note(run.effective)):
        yield ""
        yield Text(note)


def _summary(summary: Mapping[str, Any], own: OwnFields) -> Table:
    shown = Table.grid(padding=(0, 2))
    for field, value in summary.items():
        declared = describe(field, own)
        shown.add_row(declared.title, Text(_written(declared, value)))
    return shown


def _rounds(records: Sequence[Mapping[str, Any]], own: OwnFields) -> Table:
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    shown.add_column("round", justify="right")
    cells = [[str(record.get("round", "–"))] for record in records]
    metrics = [name for name in own if measured_on(name) == "test set"]
    for field in (*_FIELDS[:_AFTER], *metrics, *_FIELDS[_AFTER:]):
        values = [record.get(field) for record in records]
        known = [value for value in values if value is not None]
        if not known:
            continue
        declared = describe(field, own)
        unit = fitting(declared.units, max(known))
        shown.add_column(titled(declared.title, unit), justify="right")
        for line, value in zip(cells, values, strict=True):
            line.append("–" if value is None else unit.write(value))
    for line in cells:
        shown.add_row(*line)
    return shown


def _written(declared: Field, value: Any) -> str:
    if value is None:
        return "not reached" if is_to_target(declared.name) else "–"
    return declared.write(value)
