"""Learning curves for print: one definition for notebooks, pages and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, cycle
from typing import TYPE_CHECKING, Any, NamedTuple

from fedge.core.chart_kinds import MAX_CURVES
from fedge.core.errors import ConfigError
from fedge.core.fields import Field, Unit, fitting
from fedge.report.chart_options import AXIS, PLAIN, ChartOptions, balanced_columns, keep_best, number_axis
from fedge.report.groups import RunGroup, describe_timed
from fedge.report.series import NUM_BUCKETS, Series, trace
from fedge.report.statistics import LEVEL, MIN_SEEDS
from fedge.report.style import COLOURS, FAINT, HALO, TICKS, inline, line_looks, need, save
from fedge.report.target_label import SIZE, LabelPlace, place_label

if TYPE_CHECKING:
    import altair

__all__ = ["COLOURS", "curves", "rounds_and_upload", "save", "side_by_side"]

_MAX_COLUMNS = {"single": 3, "double": 5}  # of small multiples
_GAP = 14  # between panels
_SMALL = 90  # height of a panel
_FEW = 4  # bands that readers can distinguish where they overlap; more bands are fainter
_LETTER = 5  # width in pixels of a letter in a panel's header
_FEW_SEEDS = 5  # fewer have wide intervals: with three seeds, 2.5 standard deviations to each side
_FAR_APART = 10  # ratio of uploads; on a linear axis, the curve with the smaller upload would be a vertical line


def curves(
    groups: Sequence[RunGroup],
    x: str = "round",
    y: str = "accuracy",
    options: ChartOptions = PLAIN,
    note: str = "",
) -> Any:
    """Return the mean of y over seeds, one line per group; x is one of `AXES`, accumulated over rounds.

    Around the mean is a band, or what `options` specify. More groups than `options.top` are reduced to the best, which
    a note states. More than `MAX_CURVES` are drawn as small multiples. `note` is added to the caption.
    """
    if not groups:
        raise ConfigError("a chart needs at least one run, got none; check the path of the runs")
    alt = need("altair")
    across, up = describe_timed(groups, x), describe_timed(groups, y)
    traced = [(group, trace(group, x, y)) for group in groups]
    best, left_out = _best_lines(traced, up, options.top)
    kept, found = [group for group, _ in best], [line for _, line in best]
    mixed = any(group.mixed for group in kept)
    spread = _spread(found, mixed, options)
    lines = [_as_drawn(line, spread) for line in found]
    axes = _Axes(
        across,
        up,
        fitting(across.units, max(float(line.x[-1]) for line in lines)),
        fitting(up.units, max(float(line.mean.max()) for line in lines)),
    )
    places = _panels(kept)
    labels = list(dict.fromkeys(place.label for place in places))
    colours = dict(zip(labels, cycle(COLOURS), strict=False))
    placed = zip(lines, places, strict=True)
    rows = [row for line, place in placed for row in _rows(line, place, colours[place.label], axes, spread)]
    options.check_log("x", [row["x"] for row in rows])
    options.check_log("y", [row["mean"] for row in rows if "mean" in row])
    layers = _layers(alt, axes, labels, options, spread)
    if any(len(line.x) == 1 for line in lines):  # a line of one point would be invisible
        *_, mean = layers
        layers.append(mean.transform_filter("datum.alone").mark_point().encode(strokeDash=alt.value([1, 0])))
    small = places[0].panel is not None
    goals = [goal for goal in dict.fromkeys(group.target for group in kept) if goal and goal.metric == y]
    for goal in goals:
        text = "" if small else f"target {goal.written}"
        room = options.panel(1, options.legend_room(labels))
        place = place_label(lines, goal.value, text, room, (options.is_log("x"), options.is_log("y")))
        layers += _goal(alt, goal.value / axes.y_unit.size, text, place)
    target = f"dashed: target {', '.join(goal.written for goal in goals)}" if small and goals else ""
    caption = options.caption(_seeds_note(lines, mixed, spread), target, _thinning_note(lines), left_out, note)
    style = options.style(labels, "top-right" if up.better == "lower" else "bottom-right")
    data = inline(alt, rows)
    if not small:
        return alt.layer(*layers, data=data, title=caption, config=style, **options.size)
    return _small_multiples(alt, layers, data, places, options).properties(title=caption, config=style)


def best_groups(groups: Sequence[RunGroup], x: str, y: str, top: int = MAX_CURVES) -> tuple[list[RunGroup], str]:
    """Return the groups with the best last values of y over x, in their order, and a note if others were left out."""
    best, left_out = _best_lines([(group, trace(group, x, y)) for group in groups], describe_timed(groups, y), top)
    return [group for group, _ in best], left_out


def _best_lines(
    traced: Sequence[tuple[RunGroup, Series]], declared: Field, top: int
) -> tuple[list[tuple[RunGroup, Series]], str]:
    ranked = [((group, line), declared.rank(float(line.mean[-1]))) for group, line in traced]
    return keep_best(ranked, top, f"last {declared.title}", declared.better != "neither")


def rounds_and_upload(groups: Sequence[RunGroup], y: str, note: str = "") -> altair.ConcatChart:
    """Return y over rounds beside y over upload; the upload axis is logarithmic if uploads differ greatly.

    Fewer than five seeds are drawn as thin lines, because the intervals of three would cover most of a small panel.
    """
    few = ChartOptions(band=None)
    uploads = [trace(group, "bytes_up", y).x for group in groups]
    far_apart = max(x[-1] for x in uploads) > _FAR_APART * min(x[-1] for x in uploads)
    wide = replace(few, log="x") if far_apart and min(x[0] for x in uploads) > 0 else few
    return side_by_side([curves(groups, "round", y, few, note), curves(groups, "bytes_up", y, wide, note)])


def side_by_side(charts: Sequence[altair.LayerChart], options: ChartOptions = PLAIN) -> altair.ConcatChart:
    """Return charts of the same groups as one figure with one legend, as wide as both columns of a paper."""
    if not charts:
        raise ConfigError("expected at least one chart to put side by side, got none")
    alt, wide = need("altair"), replace(options, width="double")
    parts = [chart.copy() for chart in charts]
    legends = [_labels(part) for part in parts]
    if any(labels != legends[0] for labels in legends):
        raise ConfigError(f"charts side by side share a legend, so they need the same groups; got {legends}")
    titles = [part.title for part in parts]
    for part in parts:
        part.config = part.autosize = alt.Undefined  # only the whole figure may have them
        part.width = wide.panel(len(parts))
        if titles.count(titles[0]) == len(titles):
            part.title = alt.Undefined
    title = titles[0] if titles.count(titles[0]) == len(titles) else alt.Undefined
    figure: altair.ConcatChart = alt.concat(*parts, columns=len(parts), title=title, config=wide.style(legends[0]))
    return figure


class _Axes(NamedTuple):
    x: Field
    y: Field
    x_unit: Unit
    y_unit: Unit


class _Spread(NamedTuple):
    """The marks around the mean."""

    band: bool
    seeds: bool
    log: bool  # the band must not reach 0


class _Place(NamedTuple):
    """Where a curve is drawn: its label in the legend, and its panel."""

    label: str
    panel: str | None


def _panels(groups: Sequence[RunGroup]) -> list[_Place]:
    """Return a place for each group: in one panel, in panels by settings if none then has too many, or in its own."""
    if len(groups) <= MAX_CURVES:
        return [_Place(group.label, None) for group in groups]
    keys = list(dict.fromkeys(key for group in groups for key in group.parts))
    for size in range(1, len(keys)):
        for chosen in combinations(keys, size):
            places = [_split(group, chosen) for group in groups]
            labels = {place.label for place in places}
            if 1 < len(labels) <= MAX_CURVES and len(set(places)) == len(places):
                return places
    return [_Place("", group.label) for group in groups]


def _split(group: RunGroup, chosen: Sequence[str]) -> _Place:
    panel = ", ".join(text for key, text in group.parts.items() if key in chosen)
    return _Place(", ".join(text for key, text in group.parts.items() if key not in chosen), panel)


def _small_multiples(
    alt: Any, layers: Sequence[Any], data: Any, places: Sequence[_Place], options: ChartOptions
) -> Any:
    panels = list(dict.fromkeys(place.panel or "" for place in places))
    columns = balanced_columns(len(panels), _MAX_COLUMNS[options.width])
    legend = options.legend_room([place.label for place in places])
    width = (options.canvas - 10 - legend - AXIS - (columns - 1) * _GAP) // columns
    wraps = any(len(panel) * _LETTER > width for panel in panels)
    lines = {"labelExpr": "split(datum.label, ', ')"} if wraps else {}
    header = alt.Header(title=None, labelFontSize=9, labelPadding=3, labelLimit=width + _GAP, **lines)
    chart = alt.layer(*layers, data=data, width=width, height=_SMALL)
    facet = alt.Facet("panel:N", sort=panels, header=header)
    return chart.facet(facet, columns=columns, spacing=_GAP)


def _layers(alt: Any, axes: _Axes, labels: Sequence[str], options: ChartOptions, spread: _Spread) -> list[Any]:
    """Return the bands, each seed, and the means, which come last."""
    words = options.words
    x_scale = options.scale(alt, "x", zero=True, nice=False)
    y_scale = options.scale(alt, "y", zero=False, nice=TICKS)
    x_axis = number_axis(alt, axes.x, axes.x_unit, options.is_log("x"))
    y_axis = number_axis(alt, axes.y, axes.y_unit, options.is_log("y"))
    at = alt.X("x:Q", title=words.axis("x", axes.x, axes.x_unit), scale=x_scale, axis=x_axis)
    value = alt.Y("mean:Q", title=words.axis("y", axes.y, axes.y_unit), scale=y_scale, axis=y_axis)
    looks = line_looks(alt, labels) if labels != [""] else {"stroke": alt.value(COLOURS[0])}
    chart = alt.Chart()  # without its own data: all layers share the chart's
    mean = chart.transform_filter("isValid(datum.mean)") if spread.seeds else chart
    # the data has the colour: a second colour scale without a legend would hide the first legend
    fill = alt.Fill("colour:N", scale=None)
    layers = []
    if spread.band:
        area = mean.mark_area(opacity=0.18 if len(labels) <= _FEW else 0.1)
        layers.append(area.encode(at, alt.Y("low:Q"), alt.Y2("high:Q"), alt.Detail("label:N"), fill=fill))
    if spread.seeds:
        thin = chart.transform_filter("isValid(datum.value)").mark_line(strokeWidth=0.5, strokeOpacity=0.7)
        seed = alt.Detail(["label:N", "seed:N"])
        layers.append(thin.encode(at, alt.Y("value:Q"), seed, stroke=alt.Stroke("colour:N", scale=None)))
    return [*layers, mean.mark_line().encode(at, value, **looks)]


def _spread(lines: Sequence[Series], mixed: bool, options: ChartOptions) -> _Spread:
    few = not mixed and any(1 < line.count < _FEW_SEEDS for line in lines)
    band = options.seeds or not few if options.band is None else options.band
    return _Spread(band, options.seeds or (few and options.band is None), options.is_log("y"))


def _as_drawn(line: Series, spread: _Spread) -> Series:
    """Return the line with the drawn extent as its band: that of the band, of its seeds or of the mean."""
    if spread.band:
        return line
    drawn = line.seeds if spread.seeds else line.mean[None]
    return replace(line, low=drawn.min(axis=0), high=drawn.max(axis=0))


def _rows(line: Series, place: _Place, colour: str, axes: _Axes, spread: _Spread) -> Iterator[dict[str, Any]]:
    x_unit, y_unit, declared = axes.x_unit, axes.y_unit, axes.y
    own = {"label": place.label, "colour": colour} | ({} if place.panel is None else {"panel": place.panel})
    # the interval of few seeds may exceed the range of an accuracy, or of a logarithm; the band is clipped
    lowest = max(declared.low, float(line.mean.min()) / 10 if spread.log else declared.low)
    for x, mean, low, high in zip(line.x, line.mean, line.low, line.high, strict=True):
        yield own | {
            "x": x / x_unit.size,
            "mean": mean / y_unit.size,
            "low": max(low, lowest) / y_unit.size,
            "high": min(high, declared.high) / y_unit.size,
            "alone": len(line.x) == 1,
        }
    if spread.seeds and line.count > 1:
        for seed, values in enumerate(line.seeds):
            for x, value in zip(line.x, values, strict=True):
                yield own | {"seed": seed, "x": x / x_unit.size, "value": value / y_unit.size}


def _goal(alt: Any, value: float, text: str, place: LabelPlace) -> list[Any]:
    """Return a thin rule, with its text at the end where no curve is near."""
    once = alt.Chart().transform_aggregate(rows="count()", groupby=["panel"]).encode(y=alt.YDatum(value))
    rule = once.mark_rule(strokeDash=[3, 3], strokeWidth=0.75, color=FAINT)
    looks = {"align": "right", "dx": -3} if place.right else {"align": "left", "dx": 3}
    looks |= {"baseline": "top", "dy": 2} if place.below else {"baseline": "bottom"}
    x = alt.value("width" if place.right else 0)
    labels = [once.mark_text(text=text, fontSize=SIZE, **looks | ink).encode(x=x) for ink in (HALO, {"color": FAINT})]
    return [rule, *labels] if text else [rule]


def _labels(chart: Any) -> list[str]:
    """Return the groups of a chart made by `curves`, from the first layer with a legend, which has the lines."""
    encodings = (layer.encoding.to_dict() for layer in chart.layer)
    domain: list[str] = next(found["strokeDash"]["scale"]["domain"] for found in encodings if "strokeDash" in found)
    return domain


def _thinning_note(lines: Sequence[Series]) -> str:
    """Return a note on how long curves were thinned after averaging; empty if none was."""
    longest = max(line.num_points for line in lines)
    if all(len(line.x) == line.num_points for line in lines):
        return ""
    return f"{longest:,} points averaged, then thinned to minimum, maximum and last of {NUM_BUCKETS} buckets"


def _seeds_note(lines: Sequence[Series], mixed: bool, spread: _Spread) -> str:
    """Return a note on the number of seeds or runs behind a line, and on what band and thin lines are."""
    what = "runs of different settings" if mixed else "seeds"
    counts = sorted({line.count for line in lines})
    used, known = sum(line.count for line in lines), sum(line.num_runs for line in lines)
    share = f" ({used} of {known} runs)" if used < known else ""  # others are unfinished, or lack the metric
    if counts == [1]:
        return f"one seed{share}"
    seeds = (f"{counts[0]} {what}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} {what}") + share
    one = what.partition(" ")[0]
    notes = [f"mean of {seeds}", f"band: {_band_note(lines, mixed, one)}" if spread.band else ""]
    return "; ".join(filter(None, [*notes, f"thin lines: each {one[:-1]}" if spread.seeds else ""]))


def _band_note(lines: Sequence[Series], mixed: bool, what: str) -> str:
    confidence = f"{100 * LEVEL:g}% confidence interval"
    bands = {line.band for line in lines}
    if {"range", "interval"} <= bands:
        few = f"fewer than {MIN_SEEDS}" + (" or if settings differ" if mixed else "")
        return f"{confidence}, or range if {few}"
    return confidence if "interval" in bands else f"range of the {what}"
