"""Learning curves fit for print: one definition for notebook, page and file.

Needs the extra `view`, which is imported on first use, so that the rest of `fedge.report` works without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import cycle, islice
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedge.core.errors import ConfigError, FedgeError, StorageError
from fedge.report.groups import Group
from fedge.report.quantities import COSTS, NUMBER, Quantity, Unit, fitting, metric, titled
from fedge.report.series import MIN_SEEDS, Series, trace
from fedge.report.statistics import LEVEL

if TYPE_CHECKING:
    import altair

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
"""Okabe and Ito's palette, which the colour-blind can tell apart; the faintest on white paper come last."""

DASHES = ((1, 0), (6, 2), (2, 2), (8, 2, 2, 2), (10, 2, 2, 2, 2, 2))
"""For grey print. Five dashes and eight colours make forty different lines."""

PNG_SCALE = 3  # 288 dots an inch

_INK, _FAINT = "#222222", "#777777"

# Sizes are in pixels of 1/96 inch: with its axes a chart fills a column of a paper, in 8 point type.
_SIZE = {"width": 265, "height": 165}
_TICKS = 5
_STYLE: dict[str, Any] = {
    "font": "Helvetica, Arial, Liberation Sans, sans-serif",
    "background": "white",
    "view": {"stroke": None},
    "axis": {
        "grid": False,
        "domainColor": _FAINT,
        "tickColor": _FAINT,
        "tickSize": 4,
        "tickCount": _TICKS,
        "labelColor": _INK,
        "labelFlush": False,
        "labelFontSize": 10,
        "titleColor": _INK,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    },
    "legend": {
        "orient": "bottom",
        "title": None,
        "offset": 6,
        "rowPadding": 0,
        "labelColor": _INK,
        "labelFontSize": 10,
        "labelLimit": 0,
        "symbolType": "stroke",
        "symbolSize": 400,
        "symbolStrokeWidth": 1.75,
        "columnPadding": 14,
    },
    "title": {"anchor": "start", "color": _FAINT, "fontSize": 10, "fontWeight": "normal", "offset": 8},
    "line": {"strokeWidth": 1.75, "strokeJoin": "round"},
    "concat": {"spacing": 24},
}


def curves(
    groups: Sequence[Group],
    x: Literal["round", "bytes_up", "bytes_down", "flops", "sim_seconds", "energy_j"] = "round",
    y: str = "accuracy",
) -> altair.LayerChart:
    """The mean of y over seeds with a band, one line a group; a cost on x is what has been paid so far."""
    if not groups:
        raise ConfigError("a chart needs at least one run, got none; check the path of the runs")
    alt = _need("altair")
    lines = [trace(group, x, y) for group in groups]
    across, up = COSTS.get(x, Quantity("round", NUMBER)), metric(y)
    x_unit, y_unit = fitting(across.units, max(line.x[-1] for line in lines)), up.units[0]

    labels = [line.label for line in lines]
    colours = list(islice(cycle(COLOURS), len(labels)))
    dashes = list(islice(cycle(DASHES), len(labels)))
    at = alt.X("x:Q", title=titled(across.title, x_unit), scale=alt.Scale(zero=True, nice=False))
    looks = {
        "stroke": alt.Stroke("label:N", scale=alt.Scale(domain=labels, range=colours)),
        "strokeDash": alt.StrokeDash("label:N", scale=alt.Scale(domain=labels, range=dashes)),
    }
    value = alt.Y("mean:Q", title=titled(up.title, y_unit), scale=alt.Scale(zero=False, nice=_TICKS))
    coloured = zip(lines, colours, strict=True)
    rows = [row for line, colour in coloured for row in _rows(line, colour, x_unit, y_unit)]
    points = alt.Chart()  # without data of its own, so that the layers share what they are given below
    layers = [
        # the colour comes with the data: a second scale without a legend would take that of the lines along
        points.mark_area(opacity=0.18).encode(
            at, alt.Y("low:Q"), alt.Y2("high:Q"), alt.Detail("label:N"), fill=alt.Fill("colour:N", scale=None)
        ),
        points.mark_line().encode(at, value, **looks),
    ]
    if any(len(line.x) == 1 for line in lines):  # a line of one point would not show
        layers.append(points.transform_filter("datum.alone").mark_point().encode(at, value, **looks))
    for goal in dict.fromkeys(group.target for group in groups):
        if goal and goal.metric == y:
            layers += _goal(alt, goal.value / y_unit.size, goal.written)
    style = _style(labels, _SIZE["width"])
    chart: altair.LayerChart = alt.layer(
        *layers, data=alt.Data(values=rows), title=_subtitle(lines), config=style, **_SIZE
    )
    return chart


def side_by_side(charts: Sequence[altair.LayerChart]) -> altair.HConcatChart:
    """Charts of the same groups as one figure with one legend."""
    if not charts:
        raise ConfigError("expected at least one chart to put side by side, got none")
    alt = _need("altair")
    parts = [chart.copy() for chart in charts]
    legends = [_labels(part) for part in parts]
    if any(labels != legends[0] for labels in legends):
        raise ConfigError(f"charts side by side share a legend, so they need the same groups; got {legends}")
    titles = {part.title for part in parts}
    for part in parts:
        part.config = alt.Undefined  # only the whole may have one
        if len(titles) == 1:
            part.title = alt.Undefined
    title = titles.pop() if len(titles) == 1 else alt.Undefined
    style = _style(legends[0], len(parts) * _SIZE["width"])
    figure: altair.HConcatChart = alt.hconcat(*parts, title=title, config=style)
    return figure


def save(chart: altair.TopLevelMixin, path: Path | str) -> None:
    """Write a chart as the suffix of the path says: .svg or .png."""
    path = Path(path)
    if path.suffix not in (".svg", ".png"):
        raise ConfigError(f"{path}: a chart is saved as .svg or .png, got {path.suffix or 'no suffix'}")
    _need("vl_convert")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        chart.save(path, scale_factor=PNG_SCALE if path.suffix == ".png" else 1)
    except OSError as error:
        raise StorageError(f"{path}: cannot write the chart: {error}") from error


def _need(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise FedgeError(f"charts need {module}, which is not installed; pip install 'fedge[view]'") from None


def _rows(line: Series, colour: str, x_unit: Unit, y_unit: Unit) -> Iterator[dict[str, Any]]:
    for x, mean, low, high in zip(line.x, line.mean, line.low, line.high, strict=True):
        yield {
            "label": line.label,
            "colour": colour,
            "x": x / x_unit.size,
            "mean": mean / y_unit.size,
            "low": low / y_unit.size,
            "high": high / y_unit.size,
            "alone": len(line.x) == 1,
        }


def _goal(alt: Any, value: float, written: str) -> list[Any]:
    """A thin rule with its label beyond the right end, where no curve can cross it."""
    goal = alt.Chart(alt.Data(values=[{"mean": value}])).encode(alt.Y("mean:Q"))
    label = goal.mark_text(
        text=["target", written], align="left", baseline="middle", dx=5, dy=-5, fontSize=9, color=_FAINT
    )
    return [
        goal.mark_rule(strokeDash=[3, 3], strokeWidth=0.75, color=_FAINT),
        label.encode(x=alt.value("width")),
    ]


def _labels(chart: Any) -> list[str]:
    """The groups of a chart made by `curves`, whose second layer has the lines."""
    domain: list[str] = chart.layer[1].encoding.stroke["scale"]["domain"]
    return domain


def _style(labels: Sequence[str], width: int) -> dict[str, Any]:
    """The style with a legend of as few rows as fit the width, equally filled."""
    entry = 36 + 6 * max(map(len, labels))  # symbol and padding, and what a letter takes in the mean
    rows = ceil(len(labels) / max(1, width // entry))
    return _STYLE | {"legend": _STYLE["legend"] | {"columns": ceil(len(labels) / rows)}}


def _subtitle(lines: Sequence[Series]) -> str:
    """How many seeds stand behind a line, and what its band is."""
    counts = sorted({line.count for line in lines})
    if counts == [1]:
        return "one seed"
    seeds = f"{counts[0]} seeds" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    confidence = f"{100 * LEVEL:g}% confidence interval"
    bands = {line.band for line in lines}
    if {"range", "interval"} <= bands:
        return f"mean of {seeds}; band: {confidence}, or range if fewer than {MIN_SEEDS}"
    return f"mean of {seeds}; band: {confidence if 'interval' in bands else 'range of the seeds'}"
