"""How a chart is laid out: what `fedge plot` and `fedge.plot` can be told for every kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from textwrap import wrap
from typing import Any, Literal, TypedDict, TypeVar

from fedge.core.chart_kinds import MAX_CURVES, ChartWidth, LegendPlace, LogAxes
from fedge.core.errors import ConfigError
from fedge.core.fields import Field, Unit
from fedge.report.labels import DisplayNames
from fedge.report.style import CANVAS, FAINT, HEIGHT, INK, STYLE

AXIS = 50
"""Pixels that the axis at the left of a panel takes, with its title."""
PANEL_GAP = 20

_LETTER = 5.0  # pixels of a letter in 10 pixel type, on average
_WIDE = 6.0  # of a letter in a legend, where one entry may have many wide ones
_LEGEND_SYMBOL = 36  # with its padding


class ChartLayout(TypedDict, total=False):
    """The same as keyword arguments of `fedge.plot` and of the `plot` of runs."""

    width: ChartWidth
    title: str | None
    labels: Mapping[str, str]
    log: LogAxes | None
    legend: LegendPlace
    seeds: bool
    top: int


@dataclass(frozen=True)
class ChartOptions:
    """The layout of a chart. Widths are those of a column, and of both columns, of a paper.

    `top` is the number of curves: the best, where there are more. `seeds` draws each seed as a thin line. `labels` are
    the user's words by key, as in `fedge.report.labels.DisplayNames`.
    """

    width: ChartWidth = "single"
    title: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    log: LogAxes | None = None
    legend: LegendPlace = "bottom"
    seeds: bool = False
    top: int = MAX_CURVES
    words: DisplayNames = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.top < 1:
            raise ConfigError(f"top: expected the number of curves, at least 1, got {self.top}")
        object.__setattr__(self, "words", DisplayNames(self.labels))

    @property
    def canvas(self) -> int:
        """The width of the whole picture in pixels of 1/96 inch."""
        return CANVAS[self.width]

    @property
    def size(self) -> dict[str, Any]:
        """The size of a chart of one panel: its axes and its legend are inside the width."""
        return {
            "width": self.canvas,
            "height": HEIGHT,
            "autosize": {"type": "fit-x", "contains": "padding"},
        }

    def panel(self, columns: int) -> int:
        """Return the width of each of several panels in a row, without its axis."""
        return int((self.canvas - 10 - (columns - 1) * PANEL_GAP) / columns - AXIS)

    def caption(self, *notes: str, title: str = "") -> dict[str, Any]:
        """Return the title, the user's or else this one, with the notes below it, in lines that fit the width."""
        lines = wrap("; ".join(filter(None, notes)), int((self.canvas - 10) / _LETTER))
        bold = wrap(self.title or title, int((self.canvas - 10) / (1.25 * _LETTER)))
        if not bold:
            return {"text": lines}
        look = {"color": INK, "fontSize": 11, "fontWeight": "bold"}
        return {"text": bold, "subtitle": lines, **look, "subtitleColor": FAINT, "subtitleFontSize": 10}

    def style(self, labels: Sequence[str] = (), corner: str = "bottom-right", **legend: Any) -> dict[str, Any]:
        """Return the configuration of a chart whose legend has these entries, in as few rows as fit.

        A legend inside the chart is in this corner. Further settings of the legend replace those of `STYLE`.
        """
        if self.legend == "none":
            return STYLE | {"legend": {"disable": True}}
        room = self.canvas - 10
        entry = _LEGEND_SYMBOL + _WIDE * max(map(len, labels), default=1)
        rows = ceil(len(labels) / max(1, int(room // entry))) or 1
        look = STYLE["legend"] | {"columns": ceil(len(labels) / rows), "labelLimit": room - _LEGEND_SYMBOL} | legend
        if self.legend != "bottom":
            look |= {"columns": 1, "orient": corner if self.legend == "inside" else "right"}
        if self.legend == "inside":
            look |= {"offset": 4, "fillColor": "white", "padding": 2}
        return STYLE | {"legend": look}

    def scale(self, alt: Any, axis: Literal["x", "y"], **otherwise: Any) -> Any:
        """Return the scale of an axis: logarithmic if asked for."""
        return alt.Scale(type="log", nice=False) if self.is_log(axis) else alt.Scale(**otherwise)

    def is_log(self, axis: Literal["x", "y"]) -> bool:
        """Whether an axis is to be logarithmic."""
        return self.log in (axis, "both")

    def check_log(self, axis: Literal["x", "y"], values: Sequence[float]) -> None:
        """Raise a ConfigError if an axis that is to be logarithmic has values of 0 or less."""
        if self.is_log(axis) and (lowest := min(values, default=1.0)) <= 0:
            raise ConfigError(f"log: a logarithmic {axis} axis needs values above 0, got {lowest:g}; drop log {axis}")


PLAIN = ChartOptions()

Item = TypeVar("Item")


def number_axis(alt: Any, declared: Field, unit: Unit, log: bool = False) -> Any:
    """Return the axis of a field: counts have ticks at integers only."""
    if log:
        return alt.Axis(tickCount=4, labelOverlap="greedy")
    if not unit.name and declared.role in ("label", "count", "cost"):
        return alt.Axis(tickMinStep=1, format=",d")
    return alt.Axis()


def keep_best(items: Sequence[tuple[Item, float]], top: int, by: str, ranked: bool = True) -> tuple[list[Item], str]:
    """Return the `top` items with the smallest ranks, in their order, and a note on how many were left out.

    Without `ranked`, as for a field of which neither direction is better, these are the first ones.
    """
    if len(items) <= top:
        return [item for item, _ in items], ""
    order = sorted(range(len(items)), key=lambda i: items[i][1]) if ranked else list(range(len(items)))
    kept = sorted(order[:top])
    which = f"best {top} of {len(items)} by {by}" if ranked else f"first {top} of {len(items)}"
    return [items[i][0] for i in kept], f"{which}, --top {len(items)} shows all"
