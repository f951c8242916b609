"""Learning curves fit for print: one definition for notebook, page and file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from fedge.core.errors import ConfigError
from fedge.core.fields import Field, Unit, describe, fitting, titled
from fedge.report.groups import RunGroup, describe_in
from fedge.report.series import Series, trace
from fedge.report.statistics import LEVEL, MIN_SEEDS
from fedge.report.style import COLOURS, FAINT, SIZE, TICKS, legend_style, need, save

if TYPE_CHECKING:
    import altair

__all__ = ["COLOURS", "DASHES", "curves", "save", "side_by_side"]

DASHES = ((1, 0), (6, 2), (2, 2), (8, 2, 2, 2), (10, 2, 2, 2, 2, 2))
"""For grey print. Five dashes and eight colours make forty different lines."""


def curves(
    groups: Sequence[RunGroup],
    x: str = "round",
    y: str = "accuracy",
) -> altair.LayerChart:
    """The mean of y over seeds with a band, one line a group; x is one of `fedge.core.fields.AXES`, summed so far."""
    if not groups:
        raise ConfigError("a chart needs at least one run, got none; check the path of the runs")
    alt = need("altair")
    lines = [trace(group, x, y) for group in groups]
    across, up = describe(x), describe_in(groups, y)
    x_unit = fitting(across.units, max(line.x[-1] for line in lines))
    y_unit = fitting(up.units, max(line.mean.max() for line in lines))

    labels = [line.label for line in lines]
    colours = list(islice(cycle(COLOURS), len(labels)))
    dashes = list(islice(cycle(DASHES), len(labels)))
    at = alt.X("x:Q", title=titled(across.title, x_unit), scale=alt.Scale(zero=True, nice=False))
    looks = {
        "stroke": alt.Stroke("label:N", scale=alt.Scale(domain=labels, range=colours)),
        "strokeDash": alt.StrokeDash("label:N", scale=alt.Scale(domain=labels, range=dashes)),
    }
    value = alt.Y("mean:Q", title=titled(up.title, y_unit), scale=alt.Scale(zero=False, nice=TICKS))
    coloured = zip(lines, colours, strict=True)
    rows = [row for line, colour in coloured for row in _rows(line, colour, x_unit, y_unit, up)]
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
    style = legend_style(labels, SIZE["width"])
    chart: altair.LayerChart = alt.layer(
        *layers,
        data=alt.Data(values=rows),
        title=_subtitle(lines, any(group.mixed for group in groups)),
        config=style,
        **SIZE,
    )
    return chart


def side_by_side(charts: Sequence[altair.LayerChart]) -> altair.HConcatChart:
    """Charts of the same groups as one figure with one legend."""
    if not charts:
        raise ConfigError("expected at least one chart to put side by side, got none")
    alt = need("altair")
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
    style = legend_style(legends[0], len(parts) * SIZE["width"])
    figure: altair.HConcatChart = alt.hconcat(*parts, title=title, config=style)
    return figure


def _rows(line: Series, colour: str, x_unit: Unit, y_unit: Unit, declared: Field) -> Iterator[dict[str, Any]]:
    for x, mean, low, high in zip(line.x, line.mean, line.low, line.high, strict=True):
        yield {
            "label": line.label,
            "colour": colour,
            "x": x / x_unit.size,
            "mean": mean / y_unit.size,
            # the interval of few seeds may reach beyond what an accuracy can be: a band does not
            "low": max(low, declared.low) / y_unit.size,
            "high": min(high, declared.high) / y_unit.size,
            "alone": len(line.x) == 1,
        }


def _goal(alt: Any, value: float, written: str) -> list[Any]:
    """A thin rule with its label beyond the right end, where no curve can cross it."""
    goal = alt.Chart(alt.Data(values=[{"mean": value}])).encode(alt.Y("mean:Q"))
    label = goal.mark_text(
        text=["target", written], align="left", baseline="middle", dx=5, dy=-5, fontSize=9, color=FAINT
    )
    return [
        goal.mark_rule(strokeDash=[3, 3], strokeWidth=0.75, color=FAINT),
        label.encode(x=alt.value("width")),
    ]


def _labels(chart: Any) -> list[str]:
    """The groups of a chart made by `curves`, whose second layer has the lines."""
    domain: list[str] = chart.layer[1].encoding.stroke["scale"]["domain"]
    return domain


def _subtitle(lines: Sequence[Series], mixed: bool) -> str:
    """How many seeds, or runs that differ in more, stand behind a line, and what its band is."""
    what = "runs of different settings" if mixed else "seeds"
    counts = sorted({line.count for line in lines})
    if counts == [1]:
        return "one seed"
    seeds = f"{counts[0]} {what}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} {what}"
    confidence = f"{100 * LEVEL:g}% confidence interval"
    bands = {line.band for line in lines}
    if {"range", "interval"} <= bands:
        few = f"fewer than {MIN_SEEDS}" + (" or if settings differ" if mixed else "")
        return f"mean of {seeds}; band: {confidence}, or range if {few}"
    return f"mean of {seeds}; band: {confidence if 'interval' in bands else 'range of the ' + what.partition(' ')[0]}"
