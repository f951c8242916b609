"""One run in full, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
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
_AFTER = _FIELDS.index("train_loss")  # position of a run's own metrics


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
        yield _Rounds(run.rounds[-NUM_ROUNDS:], run.own_fields)
    if (run.summary or run.rounds) and (note := edge_note(run.effective)):
        yield ""
        yield Text(note)


def _summary(summary: Mapping[str, Any], own: OwnFields) -> Table:
    shown = Table.grid(padding=(0, 2))
    for field, value in summary.items():
        declared = describe(field, own)
        shown.add_row(declared.title, Text(_written(declared, value)))
    return shown


@dataclass(frozen=True)
class _Rounds:
    """Records of rounds as a table; its headings wrap at words if the terminal is narrow."""

    records: Sequence[Mapping[str, Any]]
    own: OwnFields

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        columns = dict(self._columns())
        folds = sum(max(map(len, [head, *texts])) + 2 for head, texts in columns.items()) > options.max_width
        shown = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1), pad_edge=False)
        for head, texts in columns.items():
            words = head.split() if folds else [head]
            shown.add_column(head, justify="right", width=max(map(len, [*words, *texts])))
        for line in zip(*columns.values(), strict=True):
            shown.add_row(*line)
        yield shown

    def _columns(self) -> Iterator[tuple[str, list[str]]]:
        yield "round", [str(record.get("round", "–")) for record in self.records]
        metrics = [name for name in self.own if measured_on(name) == "test set"]
        for field in (*_FIELDS[:_AFTER], *metrics, *_FIELDS[_AFTER:]):
            values = [record.get(field) for record in self.records]
            known = [value for value in values if value is not None]
            if known:
                declared = describe(field, self.own)
                unit = fitting(declared.units, max(known))
                texts = ["–" if value is None else unit.write(value) for value in values]
                yield titled(declared.title, unit), texts


def _written(declared: Field, value: Any) -> str:
    if value is None:
        return "not reached" if is_to_target(declared.name) else "–"
    return declared.write(value)
