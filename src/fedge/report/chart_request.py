"""The charts that `fedge plot` and `fedge.plot` draw, and the options that each kind accepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from fedge.core.chart_kinds import ChartKind
from fedge.core.errors import ConfigError, nearest
from fedge.report.chart_options import PLAIN, ChartOptions

if TYPE_CHECKING:
    from fedge.report.groups import RunGroup
    from fedge.runs import Run

_EVERY = ("width", "title")
TAKES: dict[ChartKind, tuple[str, ...]] = {
    "curves": ("x", "y", "by", *_EVERY, "label", "log", "legend", "seeds", "no-band", "top"),
    "bars": ("y", "by", *_EVERY, "label", "log"),
    "pareto": ("x", "y", "by", *_EVERY, "label", "log", "legend", "top"),
    "parallel": ("x", "y", "by", *_EVERY, "label"),
    "pairs": ("y", "by", "baseline", *_EVERY, "label", "legend"),
    "importance": ("y", *_EVERY, "label"),
    "heatmap": ("y", "by", *_EVERY, "label", "legend"),
    "users": ("by", *_EVERY, "label", "legend", "top"),
    "breakdown": ("y", *_EVERY, "label", "legend"),
    "grid": ("round", *_EVERY),
    "timeline": ("round", *_EVERY, "legend"),
    "latency": ("by", *_EVERY, "label", "log", "legend", "top"),
    "throughput": (*_EVERY, "label", "legend"),
}
"""The options of each kind."""


@dataclass(frozen=True)
class ChartRequest:
    """The chart to draw; `stepped` if the output can have a slider."""

    kind: ChartKind
    x: str | None = None
    y: str | None = None
    by: Sequence[str] = ()
    rounds: Sequence[int] = ()
    stepped: bool = False
    baseline: str | None = None
    options: ChartOptions = PLAIN

    def check(self, dash: str = "") -> None:
        """Raise a ConfigError for an option that this kind of chart ignores; `dash` precedes the names of options."""
        if self.kind not in TAKES:
            known = ", ".join(TAKES)
            raise ConfigError(f"{dash}kind: expected one of {known}, got {self.kind!r}{nearest(self.kind, TAKES)}")
        takes = TAKES[self.kind]
        for option in self._given():
            if option not in takes:
                known = ", ".join(f"{dash}{each}" for each in takes)
                raise ConfigError(f"{dash}{option}: {dash}kind {self.kind} takes only {known}; drop {dash}{option}")
        if self.kind == "heatmap" and len(self.by) not in (0, 2):
            raise ConfigError(f"{dash}by: a heat map needs two settings, got {len(self.by)}; give two")
        if self.kind == "timeline" and len(self.rounds) > 1:
            raise ConfigError(f"{dash}round: a timeline shows one round, got {len(self.rounds)}; give one")
        if self.kind == "bars" and self.options.log in ("y", "both"):
            raise ConfigError(f"{dash}log: bars have numbers on the x axis only; give {dash}log x")
        if self.kind == "latency" and self.options.log in ("y", "both"):
            raise ConfigError(f"{dash}log: the y axis of latency is a share; give {dash}log x")

    def _given(self) -> list[str]:
        """Return the names, as users write them, of the options that differ from their defaults."""
        names = {"labels": "label", "band": "no-band"}
        changed = [one.name for one in fields(PLAIN) if getattr(self.options, one.name) != getattr(PLAIN, one.name)]
        own = {"x": self.x, "y": self.y, "by": self.by, "round": self.rounds, "baseline": self.baseline}
        return [*(name for name, value in own.items() if value), *(names.get(n, n) for n in changed if n != "words")]


def draw(request: ChartRequest, runs: Sequence[Run]) -> Any:
    """Return the chart of these runs. Raises ConfigError if they lack its data, or if a label names nothing in it."""
    import numpy as np  # imported here because it is slow and help does not need it

    makers = {"grid": _draw_edge, "timeline": _draw_edge}
    makers |= dict.fromkeys(("importance", "breakdown", "throughput"), _draw_runs)
    with np.errstate(over="ignore", invalid="ignore"):  # a point beyond any float is not drawn
        chart = makers.get(request.kind, _draw_groups)(request, runs)
    request.options.words.check()
    return chart


def _draw_groups(request: ChartRequest, runs: Sequence[Run]) -> Any:
    from fedge.report.bars import bars
    from fedge.report.groups import group_begun, regroup
    from fedge.report.heatmap import heatmap
    from fedge.report.latency import latency
    from fedge.report.learning_curves import curves
    from fedge.report.pairs_chart import paired_differences
    from fedge.report.parallel_coordinates import parallel
    from fedge.report.pareto_chart import pareto
    from fedge.report.user_accuracy import users

    options, by = request.options, request.by
    groups: Sequence[RunGroup] = group_begun(runs, options.words)
    if request.kind == "heatmap":
        return heatmap(groups, request.y or "accuracy", (by[0], by[1]) if by else None, options)
    if request.kind == "parallel":
        return parallel(groups, request.y or "accuracy", request.x, by, options)
    if by:
        groups = regroup(groups, by, options.words)
    if request.kind == "curves":
        return curves(groups, request.x or "round", request.y or "accuracy", options)
    if request.kind == "pareto":
        return pareto(groups, request.x or "bytes_to_target", request.y or "flops_to_target", options)
    if request.kind == "pairs":
        return paired_differences(groups, request.y or "accuracy", request.baseline, options)
    if request.kind == "bars":
        return bars(groups, request.y or "rounds_to_target", options)
    return latency(groups, options) if request.kind == "latency" else users(groups, options)


def _draw_runs(request: ChartRequest, runs: Sequence[Run]) -> Any:
    from fedge.report.cost_breakdown import breakdown
    from fedge.report.importance_chart import importance_bars
    from fedge.report.throughput import throughput_chart

    if request.kind == "importance":
        return importance_bars(runs, request.y or "accuracy", request.options)
    begun = [run for run in runs if run.rounds or request.kind == "throughput"]
    if len(begun) != 1:
        raise ConfigError(f"this chart is of one run, got {len(begun)} with records; give the path of one")
    if request.kind == "throughput":
        return throughput_chart(begun[0], request.options)
    return breakdown(begun[0], request.y or "bytes", request.options)


def _draw_edge(request: ChartRequest, runs: Sequence[Run]) -> Any:
    from fedge.report.cell_grid import grid, stepped_grid
    from fedge.report.edge_records import find_round, read_one
    from fedge.report.timeline import timeline

    (rounds, names), first = read_one(runs), next(iter(request.rounds), None)
    if request.kind == "timeline":
        return timeline(find_round(rounds, first), names, request.options)
    if request.stepped and len(request.rounds) < 2:
        return stepped_grid(rounds, first, names, request.options)
    return grid(rounds, request.rounds, names, request.options)
