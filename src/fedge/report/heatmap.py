"""A heat map of a result over two varied settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from fedge.core.effect import settings
from fedge.core.errors import ConfigError
from fedge.core.fields import Field, Unit, is_to_target
from fedge.report.chart_options import PLAIN, SHORT, ChartOptions
from fedge.report.group_results import target_note, unit_of
from fedge.report.groups import RunGroup, check_key, describe_timed, varied
from fedge.report.labels import sorted_values
from fedge.report.run_results import check_outcome, outcome
from fedge.report.statistics import Reached, to_target
from fedge.report.style import HEIGHT, INK, inline, need
from fedge.report.tables import num_decimals
from fedge.report.text_width import text_width

if TYPE_CHECKING:
    import altair

_ROW = 28  # pixels
_LEAST = 90  # least height of all rows in pixels, so that the title of the colour bar fits
_MAX_CELL = 64
_TURN = 0.68  # position on the colour scale from which white text has more contrast than black
_LIGHT, _DARK = "white", "black"  # text colours in cells
_BAR = 65  # width in pixels of the colour bar with its title
_TITLE = 25  # width in pixels of the title at the left
_LARGE = 1e6  # larger numbers have an exponent, since cells are small
_SMALL = 9  # font size in cells in pixels


def heatmap(
    groups: Sequence[RunGroup],
    y: str = "accuracy",
    keys: tuple[str, str] | None = None,
    options: ChartOptions = PLAIN,
) -> altair.LayerChart:
    """Return the mean of a result over two settings; darker is better, or higher if no direction is better."""
    alt = need("altair")
    across, down = keys or two_settings(groups)
    for key in (across, down):
        check_key(key, groups)
    merged: dict[tuple[str, str], list[RunGroup]] = {}
    found: dict[str, list[Any]] = {across: [], down: []}
    for group in groups:
        own = dict(settings(group.runs[0].config))
        for key, values in found.items():
            values.append(own.get(key))
        merged.setdefault((str(own.get(across)), str(own.get(down))), []).append(group)
    check_outcome([run for group in groups for run in group.runs], y)
    results = {place: _result(alike, y) for place, alike in merged.items()}
    declared = describe_timed(groups, y)
    unit = unit_of(declared.units, list(results.values()))
    lower = declared.better == "lower"
    names = {key: _texts(options, key, values) for key, values in found.items()}
    rows = [
        {"a": names[across][a], "b": names[down][b]} | cell for (a, b), cell in _cells(results, unit, lower).items()
    ]
    columns, lines = list(names[across].values()), list(names[down].values())
    mixed = "mean over the other varied settings" if any(len(alike) > 1 for alike in merged.values()) else ""
    lacking = "–: target not reached" if is_to_target(y) and any(row["mean"] is None for row in rows) else ""
    title = options.words.axis("color", declared, unit)
    height = max(_ROW * len(lines), _LEAST, min(ceil(text_width(title, 11)), HEIGHT))
    size = options.size | {"height": height}
    if options.canvas > _MAX_CELL * len(columns) + 180:
        size = {"width": _MAX_CELL * len(columns), "height": height}
    bar = {"title": title, "gradientLength": height - 4, "titleLimit": height}
    made: altair.LayerChart = alt.layer(
        *_layers(alt, [(across, columns), (down, lines[::-1])], rows, lower, options, bar),
        data=inline(alt, rows),
        title=options.caption(_direction(declared), target_note(groups, y), mixed, lacking),
        config=options.style(),
        **size,
    )
    return made


def two_settings(groups: Sequence[RunGroup]) -> tuple[str, str]:
    """Return two varied settings, numeric ones first. Raises ConfigError if fewer vary."""
    found = varied([group.runs[0] for group in groups])
    if len(found) < 2:
        raise ConfigError(
            f"a heat map needs two settings that vary, got {', '.join(found) or 'none'}; "
            "add runs that differ in another, or draw --kind bars"
        )
    first, second, *_ = sorted(found, key=lambda key: not all(isinstance(value, int | float) for value in found[key]))
    return first, second


def _result(alike: Sequence[RunGroup], y: str) -> Reached:
    return to_target([outcome(run, y) for group in alike for run in group.runs if run.summary is not None])


def _texts(options: ChartOptions, key: str, values: Sequence[Any]) -> dict[str, str]:
    """Return the text of each value of a setting, keyed by value and in order."""
    ordered = sorted_values(values)
    return dict(zip(map(str, ordered), options.words.values(key, ordered), strict=True))


def _cells(
    results: Mapping[tuple[str, str], Reached], unit: Unit, lower: bool
) -> dict[tuple[str, str], dict[str, Any]]:
    means = {place: one.estimate.mean / unit.size if one.estimate else None for place, one in results.items()}
    known = [mean for mean in means.values() if mean is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    form = f",.{num_decimals(high)}f" if high < _LARGE else ".3g"
    cells = {}
    for place, mean in means.items():
        depth = 0.0 if mean is None or low == high else (mean - low) / (high - low)
        dark = mean is not None and (1 - depth if lower else depth) > _TURN
        cells[place] = {"mean": mean, "text": "–" if mean is None else f"{mean:{form}}", "dark": dark}
    return cells


def _layers(
    alt: Any,
    sides: Sequence[tuple[str, Sequence[str]]],
    rows: Sequence[Mapping[str, Any]],
    lower: bool,
    options: ChartOptions,
    bar: Mapping[str, Any],
) -> list[Any]:
    (across, columns), (down, lines) = sides
    side = max(map(text_width, lines)) + _TITLE
    room = min(_MAX_CELL, (options.canvas - 10 - side - (0 if options.legend == "none" else _BAR)) / len(columns))
    plain = {"labelAngle": 0, "domain": False, "ticks": False, "labelLimit": 0}
    turned = {"labelAngle": -90, "labelOverlap": "greedy"} if max(map(text_width, columns)) > room else {}
    at = [
        alt.X("a:N", title=options.words.setting(across), sort=list(columns), axis=alt.Axis(**plain | turned)),
        alt.Y("b:N", title=options.words.setting(down), sort=list(lines), axis=alt.Axis(**plain)),
    ]
    known = [row["mean"] for row in rows if row["mean"] is not None]
    domain = [min(known, default=0.0), max(known, default=1.0)]
    scale = alt.Scale(scheme="blues", reverse=lower, domain=domain)
    legend = alt.Legend(
        titleOrient="right",
        orient="right",
        gradientThickness=10,
        tickCount=4,
        titleFontWeight="normal",
        labelExpr=SHORT,
        **bar,
    )
    colour = alt.Color("mean:Q", scale=scale, legend=None if options.legend == "none" else legend)
    inks = [("!isValid(datum.mean)", INK)]  # on no cell, so that a dark page changes it
    if max(text_width(row["text"], _SMALL) for row in rows) < room:
        inks += [("datum.dark", _LIGHT), ("!datum.dark && isValid(datum.mean)", _DARK)]
    chart = alt.Chart()
    return [
        chart.transform_filter("isValid(datum.mean)").mark_rect(stroke="white").encode(*at, colour),
        *(
            chart.transform_filter(which).mark_text(fontSize=_SMALL, color=ink).encode(*at, text=alt.Text("text:N"))
            for which, ink in inks
        ),
    ]


def _direction(declared: Field) -> str:
    return f"darker is {'higher' if declared.better == 'neither' else 'better'}"
