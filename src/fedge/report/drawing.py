"""The charts that `fedge plot` and `fedge.plot` know, and what each can be told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fedge.core.chart_kinds import ChartKind
from fedge.core.errors import ConfigError, nearest

if TYPE_CHECKING:
    from fedge.report.groups import RunGroup
    from fedge.runs import Run

_TAKES: dict[ChartKind, tuple[str, ...]] = {
    "curves": ("x", "y", "by"),
    "bars": ("y", "by"),
    "pareto": ("x", "y", "by"),
    "heatmap": ("y", "by"),
    "users": ("by",),
    "grid": ("round",),
    "timeline": ("round",),
    "latency": ("by",),
}


class Wish(NamedTuple):
    """What is to be drawn."""

    kind: ChartKind
    x: str | None
    y: str | None
    by: Sequence[str]
    rounds: Sequence[int]
    stepped: bool
    """Whether what comes out can have a slider."""

    def check(self, dash: str = "") -> None:
        """Refuse what this kind of chart would not heed; `dash` stands before the names of options."""
        given = {"x": self.x, "y": self.y, "by": self.by, "round": self.rounds}
        if self.kind not in _TAKES:
            known = ", ".join(_TAKES)
            raise ConfigError(f"{dash}kind: expected one of {known}, got {self.kind!r}{nearest(self.kind, _TAKES)}")
        takes = _TAKES[self.kind]
        for option, value in given.items():
            if value and option not in takes:
                known = ", ".join(f"{dash}{each}" for each in takes)
                raise ConfigError(f"{dash}{option}: {dash}kind {self.kind} takes {known} alone; drop {dash}{option}")
        if self.kind == "heatmap" and len(self.by) not in (0, 2):
            raise ConfigError(f"{dash}by: a heat map has two settings, got {len(self.by)}; give two")
        if self.kind == "timeline" and len(self.rounds) > 1:
            raise ConfigError(f"{dash}round: a timeline is of one round, got {len(self.rounds)}; give one")


def draw(wish: Wish, runs: Sequence[Run]) -> Any:
    """The chart of these runs."""
    from fedge.report.groups import group_begun, regroup

    if wish.kind in ("grid", "timeline"):
        return _draw_one(wish, runs)
    groups = group_begun(runs)
    if wish.kind == "heatmap":
        from fedge.report.overviews import heatmap

        return heatmap(groups, wish.y or "accuracy", (wish.by[0], wish.by[1]) if wish.by else None)
    return _draw_groups(wish, regroup(groups, wish.by) if wish.by else groups)


def _draw_groups(wish: Wish, groups: Sequence[RunGroup]) -> Any:
    from fedge.report.charts import curves
    from fedge.report.latency import latency
    from fedge.report.overviews import bars, pareto
    from fedge.report.users import users

    if wish.kind == "curves":
        return curves(groups, wish.x or "round", wish.y or "accuracy")
    if wish.kind == "pareto":
        return pareto(groups, wish.x or "bytes_to_target", wish.y or "flops_to_target")
    if wish.kind == "bars":
        return bars(groups, wish.y or "rounds_to_target")
    return latency(groups) if wish.kind == "latency" else users(groups)


def _draw_one(wish: Wish, runs: Sequence[Run]) -> Any:
    from fedge.report.edge import find_round, read_one
    from fedge.report.grid import grid, stepped_grid
    from fedge.report.timeline import timeline

    rounds, names = read_one(runs)
    if wish.kind == "timeline":
        return timeline(find_round(rounds, next(iter(wish.rounds), None)), names)
    if wish.stepped and len(wish.rounds) < 2:
        return stepped_grid(rounds, next(iter(wish.rounds), None), names)
    return grid(rounds, wish.rounds, names)
