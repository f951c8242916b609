"""Parallel coordinates: an axis per setting and result, and a line per group of runs through all axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fedge.core.effect import settings
from fedge.core.errors import ConfigError
from fedge.core.fields import Unit, is_to_target, titled
from fedge.report.chart_options import PLAIN, ChartOptions
from fedge.report.group_results import group_results, target_note, unit_of
from fedge.report.groups import RunGroup, check_key, describe_timed, varied
from fedge.report.labels import ALGORITHM, sorted_values
from fedge.report.statistics import Reached
from fedge.report.style import FAINT, HALO, INK, inline, need
from fedge.report.text_width import LINE, wrap_to_width

if TYPE_CHECKING:
    import altair

MAX_AXES = {"single": 5, "double": 9}
"""Number of axes that fit side by side with their texts."""
MAX_VALUES = 12
"""A setting with more distinct numbers has a linear axis; one with fewer has a position per value."""
_HEIGHT = 200
_SCHEME = "viridis"
_SIDE = 42  # pixels to the left and right of the outer axes
_GAP = 6  # pixels between the texts of two axes
_SMALL = 9  # font size in pixels


class _AxisPlaces(NamedTuple):
    """The position from 0 to 1 at which each group crosses one axis, and the texts along the axis."""

    title: str
    places: Sequence[float | None]
    texts: Sequence[str]  # of each group
    ticks: Sequence[tuple[float, str]]


def parallel(
    groups: Sequence[RunGroup],
    y: str = "accuracy",
    x: str | None = None,
    keys: Sequence[str] = (),
    options: ChartOptions = PLAIN,
) -> altair.LayerChart:
    """Return a line for each group of runs through its settings and the result y, which also gives its colour.

    `x` is a second result. The settings are `keys`, by default those that differ and do not follow from the algorithm;
    if not all fit, a note states how many are shown.
    """
    alt = need("altair")
    names = [name for name in (x, y) if name is not None]
    shown, left_out = _choose(groups, keys, MAX_AXES[options.width] - len(names))
    results = {name: group_results(groups, name) for name in dict.fromkeys(names)}
    axes = [_setting_axis(groups, key, options) for key in shown]
    axes += [_result_axis(groups, name, found, options) for name, found in results.items()]
    judged = results[y]
    drawn = [i for i in range(len(groups)) if all(axis.places[i] is not None for axis in axes)]
    if not drawn:
        raise ConfigError(f"no group of runs has {' and '.join(results)}; choose another result or a lower target")
    rows = [row for i in drawn for row in _line(groups[i].label, i, axes, judged[i])]
    ticks = [
        {"axis": number, "title": axis.title, "place": place, "text": text}
        for number, axis in enumerate(axes)
        for place, text in axis.ticks
    ]
    notes = [
        f"{len(drawn)} of {len(groups)} groups of runs" if len(drawn) < len(groups) else "",
        "the others lack a result" if len(drawn) < len(groups) and not any(map(is_to_target, results)) else "",
        "the others did not reach the target" if len(drawn) < len(groups) and any(map(is_to_target, results)) else "",
        target_note(groups, *results),
        "colour: the last axis",
        left_out,
    ]
    chart: altair.LayerChart = alt.layer(
        *_layers(alt, rows, ticks, [axis.title for axis in axes], options),
        title=options.caption(*notes),
        config=options.style(),
        **options.size | {"height": _HEIGHT},
    )
    return chart


def _choose(groups: Sequence[RunGroup], keys: Sequence[str], most: int) -> tuple[list[str], str]:
    """Return the settings with an axis, and a note on those left out; the number is limited unless they are given."""
    for key in keys:
        check_key(key, groups)
    found = list(keys) or _own_settings(groups)
    if not found:
        raise ConfigError("parallel coordinates need runs that differ in a setting, got none; choose other runs")
    if keys or len(found) <= most:
        return found, ""
    return found[:most], f"{most} of {len(found)} settings"


def _own_settings(groups: Sequence[RunGroup]) -> list[str]:
    """Return the settings that differ, except those that the algorithm determines if groups share an algorithm."""
    columns = varied([group.runs[0] for group in groups])
    names = list(map(str, columns.get(ALGORITHM, ())))
    if len(set(names)) == len(names):
        return list(columns)
    return [
        key
        for key, values in columns.items()
        if key == ALGORITHM or len({*zip(names, map(str, values), strict=True)}) > len(set(names))
    ]


def _setting_axis(groups: Sequence[RunGroup], key: str, options: ChartOptions) -> _AxisPlaces:
    values = [dict(settings(group.runs[0].config)).get(key) for group in groups]
    texts = options.words.values(key, values)
    order = sorted_values(values)
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    title = options.words.setting(key)
    if len(order) > MAX_VALUES and len(numbers) == len(values):
        low, high = min(numbers), max(numbers)
        ends = [texts[numbers.index(low)], texts[numbers.index(high)]]
        return _AxisPlaces(title, [scaled(n, low, high) for n in numbers], texts, [(0.0, ends[0]), (1.0, ends[1])])
    rank = {str(value): scaled(i, 0, len(order) - 1) for i, value in enumerate(order)}
    places = [rank[str(value)] for value in values]
    ticks = dict(zip(places, texts, strict=True))
    return _AxisPlaces(title, places, texts, sorted(ticks.items()))


def _result_axis(groups: Sequence[RunGroup], name: str, found: Sequence[Reached], options: ChartOptions) -> _AxisPlaces:
    declared = describe_timed(groups, name)
    unit = unit_of(declared.units, found)
    means = [None if one.estimate is None else one.estimate.mean for one in found]
    known = [mean for mean in means if mean is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    texts = ["–" if mean is None else _written(mean, unit) for mean in means]
    ticks = [(scaled(end, low, high), _written(end, unit)) for end in dict.fromkeys((low, high))]
    places = [None if mean is None else scaled(mean, low, high) for mean in means]
    return _AxisPlaces(titled(options.words.field(declared), unit), places, texts, ticks)


def scaled(value: float, low: float, high: float) -> float:
    """Return the position of a value between two others, from 0 to 1; the middle if these are equal."""
    return 0.5 if high == low else (value - low) / (high - low)


def _line(label: str, number: int, axes: Sequence[_AxisPlaces], judged: Reached) -> list[dict[str, Any]]:
    return [
        {
            "group": number,
            "label": label,
            "axis": place,
            "title": axis.title,
            "place": axis.places[number],
            "text": axis.texts[number],
            "result": judged.estimate.mean if judged.estimate else None,
        }
        for place, axis in enumerate(axes)
    ]


def _layers(
    alt: Any,
    rows: Sequence[dict[str, Any]],
    ticks: Sequence[dict[str, Any]],
    titles: Sequence[str],
    options: ChartOptions,
) -> list[Any]:
    scale = alt.Scale(domain=[0, max(1, len(titles) - 1)], nice=False, padding=_SIDE)
    room = (options.canvas - 10 - 2 * _SIDE) / max(1, len(titles) - 1) - _GAP  # from one axis to the next
    wrapped = [LINE.join(wrap_to_width(title, max(room, _SIDE), _SMALL)) for title in titles]
    x = alt.X("axis:Q", scale=scale, axis=None)
    y = alt.Y("place:Q", scale=alt.Scale(domain=[0, 1], nice=False), axis=None)
    lines = alt.Chart(inline(alt, list(rows)))
    axes = alt.Chart(inline(alt, [{"axis": i, "title": title} for i, title in enumerate(wrapped)]))
    texts = alt.Chart(inline(alt, list(ticks)))
    # the last axis serves as legend; the yellow end of viridis is faint on paper
    shades = alt.Scale(scheme=alt.SchemeParams(_SCHEME, extent=[0.0, 0.9]))
    colour = alt.Color("result:Q", scale=shades, legend=None)
    tooltip = [alt.Tooltip("label:N", title="group"), alt.Tooltip("title:N", title="axis"), alt.Tooltip("text:N")]
    tick = {"align": "left", "dx": 5, "dy": -5, "fontSize": _SMALL, "limit": max(room, _SIDE)}
    return [
        axes.mark_rule(color=FAINT, strokeWidth=1).encode(x, y=alt.value(0), y2=alt.value(alt.ExprRef("height"))),
        lines.mark_line(strokeWidth=1.5, strokeOpacity=0.75).encode(
            x, y, colour, alt.Detail("group:N"), alt.Order("axis:Q")
        ),
        lines.mark_circle(size=30, opacity=1).encode(x, y, colour, tooltip=tooltip),
        *(texts.mark_text(**tick, **look).encode(x, y, alt.Text("text:N")) for look in (HALO, {"color": INK})),
        axes.mark_text(baseline="top", fontSize=_SMALL, color=INK, lineBreak=LINE, dy=8).encode(
            x, alt.Text("title:N"), y=alt.value(alt.ExprRef("height"))
        ),
    ]


def _written(value: float, unit: Unit) -> str:
    return f"{value / unit.size:.4g}"
