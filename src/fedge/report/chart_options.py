"""The layout of a chart: the options of `fedge plot` and `fedge.plot` that apply to every kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, isinf, sqrt
from typing import Any, Literal, TypedDict, TypeVar

from fedge.core.chart_kinds import MAX_CURVES, ChartWidth, LegendPlace, LogAxes
from fedge.core.errors import ConfigError
from fedge.core.fields import Field, Unit
from fedge.report.labels import DisplayNames
from fedge.report.style import CANVAS, FAINT, HEIGHT, INK, STYLE
from fedge.report.text_width import text_width, wrap_to_width

AXIS = 50
"""Width in pixels of a panel's left axis with its title."""
PANEL_GAP = 20

_BOLD = 1.1  # width of bold type relative to regular
_LEGEND_SYMBOL = 36  # pixels, with its padding
_LEGEND_ROW = 12  # pixels
_CORNERS = ("top-right", "bottom-left", "bottom-right", "top-left")
_SHEER = "rgba(255, 255, 255, 0.75)"  # background of a legend inside the chart: curves behind it stay visible


class ChartLayout(TypedDict, total=False):
    """`ChartOptions` as keyword arguments of `fedge.plot` and of the `plot` methods of runs."""

    width: ChartWidth
    title: str | None
    labels: Mapping[str, str]
    log: LogAxes | None
    legend: LegendPlace
    seeds: bool
    top: int
    band: bool | None


@dataclass(frozen=True)
class ChartOptions:
    """The layout of a chart.

    Widths are those of one or both columns of a paper. `top` is the maximum number of curves; the best are kept.
    `seeds` draws each seed as a thin line, and `band` the band around the mean; None draws few seeds as lines, because
    their wide bands would hide the curves. `labels` are the user's names by key, as in
    `fedge.report.labels.DisplayNames`.
    """

    width: ChartWidth = "single"
    title: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    log: LogAxes | None = None
    legend: LegendPlace = "bottom"
    seeds: bool = False
    top: int = MAX_CURVES
    band: bool | None = True
    words: DisplayNames = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.top < 1:
            raise ConfigError(f"top: expected the number of curves, at least 1, got {self.top}")
        object.__setattr__(self, "words", DisplayNames(self.labels))

    @property
    def canvas(self) -> int:
        """The width of the whole image in pixels of 1/96 inch."""
        return CANVAS[self.width]

    @property
    def size(self) -> dict[str, Any]:
        """The size of a chart with one panel: the width includes axes and legend."""
        return {
            "width": self.canvas,
            "height": HEIGHT,
            "autosize": {"type": "fit-x", "contains": "padding"},
        }

    def panel(self, columns: int, beside: int = 0) -> int:
        """Return the width of each panel in a row of several, without its axis, beside a legend of `beside` pixels."""
        return int((self.canvas - 10 - beside - (columns - 1) * PANEL_GAP) / columns - AXIS)

    def legend_room(self, labels: Sequence[str]) -> int:
        """Return the width in pixels of a legend with these entries beside the chart; 0 unless it is at the right."""
        if self.legend != "right":
            return 0
        return ceil(_LEGEND_SYMBOL + max(map(text_width, labels), default=0))

    def caption(self, *notes: str, title: str = "") -> dict[str, Any]:
        """Return the user's title, by default this one, with the notes below it, wrapped to the width."""
        room = self.canvas - 10
        lines = wrap_to_width("; ".join(filter(None, notes)), room)
        bold = wrap_to_width(self.title or title, room, 11, _BOLD)
        if not bold:
            return {"text": lines}
        look = {"color": INK, "fontSize": 11, "fontWeight": "bold"}
        return {"text": bold, "subtitle": lines, **look, "subtitleColor": FAINT, "subtitleFontSize": 10}

    def style(self, labels: Sequence[str] = (), corner: str = "bottom-right", **legend: Any) -> dict[str, Any]:
        """Return the configuration of a chart whose legend has these entries, in as few rows as fit.

        A legend inside the chart is in this corner; without a free corner, it is below the chart. Further settings of
        the legend replace those of `STYLE`.
        """
        if self.legend == "none":
            return STYLE | {"legend": {"disable": True}}
        room = self.canvas - 10 - AXIS  # a legend begins below the axis
        look = STYLE["legend"] | legend
        symbol = sqrt(look["symbolSize"]) + look["symbolStrokeWidth"] + look["labelOffset"]
        entry = symbol + look["columnPadding"] + max(map(text_width, labels), default=0)
        rows = ceil(len(labels) / max(1, int(room // entry))) or 1
        look |= {"columns": ceil(len(labels) / rows), "labelLimit": self.canvas - 10 - _LEGEND_SYMBOL}
        if self.legend == "right":
            look |= {"columns": 1, "orient": "right"}
        elif self.legend == "inside" and corner:
            look |= {"columns": 1, "orient": corner, "offset": 4, "fillColor": _SHEER, "padding": 2}
        return STYLE | {"legend": look}

    def free_corner(self, labels: Sequence[str], points: Sequence[tuple[float, float]]) -> str:
        """Return the first of `_CORNERS` in which a legend inside the chart covers no point; empty if there is none.

        Points are fractions of width and height, from the bottom left.
        """
        wide = (_LEGEND_SYMBOL + max(map(text_width, labels), default=0)) / self.panel(1)
        high = (_LEGEND_ROW * len(labels) + 8) / HEIGHT

        def covers(corner: str) -> bool:
            row, column = corner.split("-")
            return any(
                (x < wide if column == "left" else x > 1 - wide) and (y < high if row == "bottom" else y > 1 - high)
                for x, y in points
            )

        return next((corner for corner in _CORNERS if not covers(corner)), "")

    def scale(self, alt: Any, axis: Literal["x", "y"], **otherwise: Any) -> Any:
        """Return the scale of an axis: logarithmic if `log` includes it."""
        if not self.is_log(axis):
            return alt.Scale(**otherwise)
        kept = {key: value for key, value in otherwise.items() if key in ("domain", "padding")}
        return alt.Scale(type="log", nice=False, **kept)

    def is_log(self, axis: Literal["x", "y"]) -> bool:
        """Whether `log` includes an axis."""
        return self.log in (axis, "both")

    def check_log(self, axis: Literal["x", "y"], values: Sequence[float]) -> None:
        """Raise a ConfigError if a logarithmic axis has values of 0 or less."""
        if self.is_log(axis) and (lowest := min(values, default=1.0)) <= 0:
            raise ConfigError(f"log: a logarithmic {axis} axis needs values above 0, got {lowest:g}; drop log {axis}")


PLAIN = ChartOptions()


def balanced_columns(count: int, most: int) -> int:
    """Return the number of columns with the fewest rows, then the fewest gaps: 3 for six panels in at most five."""
    return ceil(count / ceil(count / most))


Item = TypeVar("Item")


_LONG = "abs(datum.value) >= 1e6 || 0 < abs(datum.value) && abs(datum.value) < 1e-4"
SHORT = f"{_LONG} ? format(datum.value, '.3~e') : datum.label"
"""The expression for the label of a tick without a long row of zeros."""
# with a smallest step of 1, Vega sets ticks at halves if it has fewer than four
INTEGERS = {"tickMinStep": 1.5, "format": ",d", "labelExpr": f"datum.value % 1 ? '' : {SHORT}"}
"""An axis with labels at integers only."""


def number_axis(alt: Any, declared: Field, unit: Unit, log: bool = False) -> Any:
    """Return the axis of a field: counts have labels at integers only, and no label exceeds the field's maximum."""
    if log:  # Vega leaves the labels of some ticks empty
        return alt.Axis(tickCount=4, labelOverlap="greedy", labelExpr=f"datum.label && ({SHORT})")
    if not unit.name and declared.role in ("label", "count", "cost"):
        return alt.Axis(**INTEGERS)
    highest = declared.high / unit.size
    return alt.Axis(labelExpr=SHORT if isinf(highest) else f"datum.value > {highest:g} ? '' : {SHORT}")


def keep_best(items: Sequence[tuple[Item, float]], top: int, by: str, ranked: bool = True) -> tuple[list[Item], str]:
    """Return the `top` items with the smallest ranks, in their order, and a note on how many were left out.

    Without `ranked`, for a field where neither direction is better, return the first items.
    """
    if len(items) <= top:
        return [item for item, _ in items], ""
    order = sorted(range(len(items)), key=lambda i: items[i][1]) if ranked else list(range(len(items)))
    kept = sorted(order[:top])
    which = f"best {top} of {len(items)} by {by}" if ranked else f"first {top} of {len(items)}"
    return [items[i][0] for i in kept], which
