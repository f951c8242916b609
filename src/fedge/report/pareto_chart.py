"""A scatter chart of two results of each group of runs, with the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from math import log
from typing import TYPE_CHECKING, Any, Literal

from fedge.core.errors import ConfigError
from fedge.core.fields import Field, Unit
from fedge.report.chart_options import PLAIN, ChartOptions, number_axis
from fedge.report.group_results import group_results, target_note, unit_of
from fedge.report.groups import RunGroup, describe_timed
from fedge.report.parallel_coordinates import scaled
from fedge.report.pareto import pareto_front
from fedge.report.style import COLOURS, FAINT, POINTS, inline, need

if TYPE_CHECKING:
    import altair

SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "triangle-left", "triangle-right")
"""With seven shapes and eight colours, the first 56 groups differ in shape or colour."""
_SIZE, _RING = 45, 110  # area of a point in square pixels, and how much larger each point is than the one drawn over it
OTHERS = "others"
"""The legend entry shared by all groups without their own."""


def pareto(
    groups: Sequence[RunGroup],
    x: str = "bytes_up_to_target",
    y: str = "flops_to_target",
    options: ChartOptions = PLAIN,
) -> altair.LayerChart:
    """Return a point for two results of each group, and the Pareto front as a line.

    With more than `options.top` groups, the legend names those on the front, and the others are grey crosses.
    """
    alt = need("altair")
    xs, ys = group_results(groups, x), group_results(groups, y)
    across, up = describe_timed(groups, x), describe_timed(groups, y)
    for declared in (across, up):
        if declared.better == "neither":
            raise ConfigError(
                f"a Pareto chart needs results with a better direction, and {declared.name} has none; choose another"
            )
    known = [
        (group.label, a.estimate.mean, b.estimate.mean)
        for group, a, b in zip(groups, xs, ys, strict=True)
        if a.estimate and b.estimate
    ]
    if not known:
        raise ConfigError(f"no group of runs has both {x} and {y}; choose others with --x, --y or a lower target")
    front = set(pareto_front([(across.rank(a), up.rank(b)) for _, a, b in known]))
    x_unit, y_unit = unit_of(across.units, xs), unit_of(up.units, ys)
    named = [label for i, (label, _, _) in enumerate(known) if len(known) <= options.top or i in front][: options.top]
    legend = [*named, OTHERS] if len(named) < len(known) else named
    colours = dict(zip(named, cycle(COLOURS), strict=False)) | {OTHERS: FAINT}
    shown = {label: label if label in named else OTHERS for label, _, _ in known}
    places = [(a, b) for _, a, b in known]
    rows = [
        {
            "label": shown[label],
            "colour": colours[shown[label]],
            "name": label,
            "x": a / x_unit.size,
            "y": b / y_unit.size,
            "front": i in front,
            "size": _SIZE + _RING * min(len(SHAPES), places[i + 1 :].count(places[i])),
        }
        for i, (label, a, b) in enumerate(known)
    ]
    options.check_log("x", [a for _, a, _ in known])
    options.check_log("y", [b for _, _, b in known])
    at = [
        alt.X("x:Q", **_axis(alt, "x", across, x_unit, options, [a / x_unit.size for _, a, _ in known])),
        alt.Y("y:Q", **_axis(alt, "y", up, y_unit, options, [b / y_unit.size for _, _, b in known])),
    ]
    missing = f"{len(groups) - len(known)} not shown: target not reached" if len(known) < len(groups) else ""
    made: altair.LayerChart = alt.layer(
        *_layers(alt, at, legend, [colours[label] for label in legend]),
        data=inline(alt, rows),
        title=options.caption("filled: Pareto front", target_note(groups, x, y), missing),
        config=options.style(legend, options.free_corner(legend, _places(rows, options)), **POINTS),
        **options.size,
    )
    return made


def _places(rows: Sequence[dict[str, Any]], options: ChartOptions) -> list[tuple[float, float]]:
    """Return the positions of the points between the extremes of both axes, from 0 to 1."""
    columns = []
    for axis in ("x", "y"):
        values = [log(row[axis]) if options.is_log(axis) else row[axis] for row in rows]
        columns.append([scaled(value, min(values), max(values)) for value in values])
    return list(zip(*columns, strict=True))


def _axis(
    alt: Any, which: Literal["x", "y"], declared: Field, unit: Unit, options: ChartOptions, values: Sequence[float]
) -> dict[str, Any]:
    # otherwise the axis of a single value would have one tick, with all digits of the value
    alone = {"domain": [values[0] / 2, values[0] * 3 / 2]} if len({*values}) == 1 and values[0] > 0 else {}
    scale = options.scale(alt, which, zero=False, nice=False, padding=12, **alone)
    return {
        "title": options.words.axis(which, declared, unit),
        "scale": scale,
        "axis": number_axis(alt, declared, unit, options.is_log(which)),
    }


def _layers(alt: Any, at: Sequence[Any], legend: Sequence[str], colours: Sequence[str]) -> list[Any]:
    shapes = list(islice(cycle(SHAPES), len(legend)))
    if legend[-1] == OTHERS:
        shapes[-1] = "cross"
    looks = {
        "stroke": alt.Stroke("label:N", scale=alt.Scale(domain=list(legend), range=list(colours))),
        "shape": alt.Shape("label:N", scale=alt.Scale(domain=list(legend), range=shapes)),
        "tooltip": [alt.Tooltip("name:N", title="group"), "x:Q", "y:Q"],
    }
    fill = alt.Fill("colour:N", scale=None)  # a second colour scale without a legend would hide the first legend
    looks["size"] = alt.Size("size:Q", scale=None)  # groups with equal results are nested, so that all are visible
    point = {"strokeWidth": 1.5, "opacity": 1}
    chart, best = alt.Chart(), alt.Chart().transform_filter("datum.front")
    return [
        best.mark_line(strokeWidth=1, strokeDash=[3, 3], color=FAINT).encode(*at, order=alt.Order("x:Q")),
        chart.mark_point(filled=False, **point).encode(*at, **looks),
        best.mark_point(**point).encode(*at, fill=fill, **looks),
    ]
