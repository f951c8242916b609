"""A run on disk for programs and notebooks: results, charts, the trained model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, cast

import torch
from torch import Tensor, nn

from fedge import config as configuration
from fedge.config import TargetOptions
from fedge.core.chart_kinds import ChartKind
from fedge.core.errors import ConfigError, ModelError, RunError, nearest
from fedge.core.fields import TO_TARGET, describe, is_to_target
from fedge.core.layout import pick
from fedge.core.lent import borrow, lending
from fedge.core.printable import printable
from fedge.core.schema import show
from fedge.data.python_data import PythonData
from fedge.experiment.results import Results
from fedge.experiment.setup import Setup
from fedge.models.python_model import PythonModel
from fedge.report.chart_options import ChartLayout, ChartOptions
from fedge.report.chart_request import ChartRequest, draw
from fedge.report.frames import frame
from fedge.report.groups import group_runs
from fedge.report.style import save as save_chart
from fedge.report.tables import compare, grid
from fedge.runs import files
from fedge.runs.code import check_code, hash_code
from fedge.runs.read import RunRecords
from fedge.runs.read import find_runs as find_records

if TYPE_CHECKING:
    import altair

Module = TypeVar("Module", bound=nn.Module)


class Run(RunRecords):
    """The run at a path: `Run("runs/first")`. Raises a RunError if there is none.

    Files are read on first access and cached; create a new `Run` to see later changes.
    """

    def __init__(self, path: str | Path, _lent: Mapping[str, Any] | None = None) -> None:
        super().__init__(Path(path))
        self._lent = _lent or {}  # objects passed by the program that trained it
        if files.holds_repeats(self.path, self.config):
            raise RunError(f"{self.path} holds repeats, not one run; use fedge.find_runs({str(path)!r})")

    @cached_property
    def model(self) -> nn.Module:
        """The network with the trained weights, in evaluation mode.

        It is built from the settings and the data. If a program passed the model or the data as an object, only that
        program can build it, and elsewhere this raises a ModelError: use `load_into` there.
        """
        with lending(self._lent):
            config = configuration.parse(self.config)
            for part in (config.model, config.data):
                if isinstance(part, PythonModel | PythonData) and borrow(part.digest) is None:
                    raise ModelError(
                        f"{self.path}: cannot build its model, since {part.type!r} was passed from Python and exists "
                        "only in that program; create the model and call run.load_into(model)"
                    )
            setup = Setup.of(config, cast(int, config.seed))
        hierarchy = setup.hierarchy()
        hierarchy.restore(pick("server", self.state()))
        if self.code:
            check_code(self.path, self.code, hash_code(setup.sources))
        return setup.network.trained(setup.algorithm.model(hierarchy.merged(), setup.network.variables))

    @property
    def weights(self) -> dict[str, Tensor]:
        """The trained tensors of the global model by name: parameters and normalisation statistics.

        For a complete run, or one that was closed between rounds, this needs neither the data nor the program.
        """
        file = self.path / files.MODEL
        if not file.exists():  # the run is in progress, was killed, or predates this file
            trained = self.model
            kept = {name for name, parameter in trained.named_parameters() if parameter.requires_grad}
            return {name: value for name, value in trained.state_dict().items() if name in kept or "running_" in name}
        safetensors: Any = import_module("safetensors.torch")
        try:
            found: dict[str, Tensor] = safetensors.load_file(file)
        except Exception as error:  # safetensors does not export its exception
            raise RunError(f"{file} is damaged: {error}; resume the run to write it again") from error
        return found

    def load_into(self, module: Module) -> Module:
        """Copy the trained weights into a module and return it; raise a ModelError if a tensor does not match."""
        own, found = module.state_dict(), self.weights
        for name, value in found.items():
            if name not in own:
                raise ModelError(f"{self.path}: the module has no trained tensor {name!r}{nearest(name, own)}")
            if own[name].shape != value.shape:
                shapes = f"{list(value.shape)}, got {list(own[name].shape)}"
                raise ModelError(f"{self.path}: expected {name!r} to have the shape {shapes}")
        for name, parameter in module.named_parameters():
            if parameter.requires_grad and name not in found:
                raise ModelError(f"{self.path}: {name!r} was not trained{nearest(name, found)}; is this another model?")
        with torch.no_grad():
            for name, value in found.items():
                own[name].copy_(value)
        return module

    def cost_to(self, **goal: float) -> dict[str, float] | None:
        """Return the rounds, bytes, FLOPs, seconds and joules until a metric reached a value; None if it never did.

        `run.cost_to(accuracy=0.9)` means at least 0.9; for a loss, at most.
        """
        if len(goal) != 1:
            raise ConfigError(f"cost_to: expected one metric, such as accuracy=0.9, got {show(goal)}")
        ((metric, value),) = goal.items()
        known = sorted({field for record in self.rounds for field in record})
        if known and metric not in known:
            recorded = ", ".join(known)
            raise ConfigError(f"cost_to: no round has {metric!r}{nearest(metric, known)}; recorded: {recorded}")
        results = Results(TargetOptions(metric=metric, value=value), self.own_fields)
        results.review(self.rounds)
        costs = {name.removesuffix(TO_TARGET): cost for name, cost in results.costs_to_target().items()}
        return None if costs["rounds"] is None else {name: cost for name, cost in costs.items() if cost is not None}

    def to_frame(self) -> Any:
        """Return a data frame with a row per round: pandas if it is installed, else polars."""
        return frame([self])

    def plot(
        self, y: str = "accuracy", x: str = "round", *, save: str | Path | None = None, **layout: Unpack[ChartLayout]
    ) -> altair.TopLevelMixin:
        """Return the curve of a metric over rounds, or over a cost such as "bytes_up"; `save` writes it to a file."""
        return plot([self], y, x, save=save, **layout)

    def _repr_html_(self) -> str:
        algorithm = self.config.get("algorithm", {}).get("name")
        head = f"{self.config.get('name')}: {algorithm}, {self.status}, {self.path}"
        aimed = (self.config.get("target") or {}).get("value") is not None
        shown = {name: value for name, value in (self.summary or {}).items() if aimed or not is_to_target(name)}
        rows = [(describe(name).title, _written(name, value)) for name, value in shown.items()]
        return _html(head, [], rows)


class Runs(list[Run]):
    """Several runs, such as the seeds of one experiment."""

    def to_frame(self, what: Literal["rounds", "summary"] = "rounds") -> Any:
        """Return a data frame with a row per round, or per run with "summary"."""
        return frame(self, what)

    def plot(
        self,
        y: str | None = None,
        x: str | None = None,
        *,
        by: str | Sequence[str] = (),
        kind: ChartKind = "curves",
        save: str | Path | None = None,
        **layout: Unpack[ChartLayout],
    ) -> altair.TopLevelMixin:
        """Return a chart, as `fedge.plot` does. Seeds of one experiment are drawn as a line with a band."""
        return plot(self, y, x, by=by, kind=kind, save=save, **layout)

    def cost_to(self, **goal: float) -> list[dict[str, float] | None]:
        """Return each run's `cost_to`."""
        return [run.cost_to(**goal) for run in self]

    def _repr_html_(self) -> str:
        cells = grid(compare(group_runs(self)))
        return _html(f"{len(self)} runs", cells.head, cells.rows)


Source = str | Path | RunRecords
"""A run, or the path of a run or of a folder that contains runs."""


def find_runs(source: Source | Iterable[Source] = "runs") -> Runs:
    """Return the runs at one or more paths, each of a run or of a folder to search."""
    many = [source] if isinstance(source, str | Path | RunRecords) else list(source)
    found: dict[Path, Run] = {}
    for each in many:
        records = [each] if isinstance(each, RunRecords) else find_records(Path(each))
        found |= {record.path: record if isinstance(record, Run) else Run(record.path) for record in records}
    return Runs(found.values())


def plot(
    runs: Source | Iterable[Source],
    y: str | None = None,
    x: str | None = None,
    *,
    by: str | Sequence[str] = (),
    kind: ChartKind = "curves",
    save: str | Path | None = None,
    **layout: Unpack[ChartLayout],
) -> altair.TopLevelMixin:
    """Return a chart of runs, or of the runs at paths; `save` writes it to a file. Notebooks display the result.

    `kind` is one of the kinds of the command `fedge plot`, such as curves of `y` over `x`, bars, pareto or heatmap.
    Runs that differ only in the seed are drawn as one; so are runs with equal values of the settings `by`, such as
    "algorithm.name". `layout` has the options of the command: `width`, `title`, `labels` as a dictionary, `log`,
    `legend`, `seeds`, `top` and `band`.
    """
    keys = [by] if isinstance(by, str) else list(by)
    request = ChartRequest(kind, x, y, keys, options=ChartOptions(**layout))
    request.check()
    found = find_runs(runs)
    if not found:
        raise RunError("plot: expected at least one run, got none")
    chart: altair.TopLevelMixin = draw(request, found)
    if save is not None:
        save_chart(chart, save)
    return chart


def _written(name: str, value: Any) -> str:
    if value is None:
        return "not reached" if is_to_target(name) else "–"
    return describe(name).write(value)


def _html(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table with all text escaped."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return f"<tr>{''.join(f'<{tag}>{_safe(cell)}</{tag}>' for cell in cells)}</tr>"

    body = "".join([line("th", head) if head else "", *(line("td", row) for row in rows)])
    return f"<table><caption>{_safe(caption)}</caption>{body}</table>"


def _safe(text: str) -> str:
    return escape(printable(text, "\n")).replace("\n", "<br>")
