"""Charts with one mark a setting: bars of an outcome, two outcomes against each other, a sweep as a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from fedge.core.effect import settings
from fedge.core.errors import ConfigError
from fedge.core.fields import Unit, fitting, is_to_target, titled
from fedge.report.groups import RunGroup, Target, describe_in, varied
from fedge.report.outcomes import check_outcome, outcome
from fedge.report.pareto import pareto_front
from fedge.report.statistics import LEVEL, MIN_SEEDS, Reached, to_target
from fedge.report.style import COLOURS, FAINT, INK, SIZE, STYLE, legend_style, need
from fedge.report.tables import write

if TYPE_CHECKING:
    import altair

_BAR = 22  # pixels a bar takes with its gap
_CELL, _ROW = 52, 30
_SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")


def bars(groups: Sequence[RunGroup], y: str = "rounds_to_target") -> altair.LayerChart:
    """An outcome of each group with its interval; a target that was not reached is said, not drawn as zero."""
    alt, results = need("altair"), _results(groups, y)
    declared = describe_in(groups, y)
    unit = _unit(declared.units, results)
    rows = [_bar(group, result, unit, is_to_target(y)) for group, result in zip(groups, results, strict=True)]
    # what was not reached comes last
    rows.sort(key=lambda row: float("inf") if row["mean"] is None else declared.rank(row["mean"]))
    at = alt.Y("label:N", title=None, sort=None, axis=alt.Axis(domain=False, ticks=False, labelLimit=0, labelPadding=6))
    largest = max((row["high"] for row in rows if row["mean"] is not None), default=1.0)
    scale = alt.Scale(domain=[0, largest or 1.0], nice=True)
    across = alt.X("mean:Q", title=titled(declared.title, unit), scale=scale)
    interval = _lines(results)
    mixed = any(group.mixed for group in groups)
    chart = alt.Chart()
    layers = [
        chart.mark_bar(color=COLOURS[0], opacity=0.75, height=11).encode(at, across),
        chart.mark_rule(color=INK, strokeWidth=1).encode(at, alt.X("low:Q"), alt.X2("high:Q")),
        chart.mark_text(align="left", dx=5, fontSize=9, color=INK).encode(at, alt.X("end:Q"), alt.Text("said:N")),
    ]
    made: altair.LayerChart = alt.layer(
        *layers,
        data=alt.Data(values=rows),
        width=SIZE["width"],
        height=_BAR * len(rows),
        title=_said([_goal(groups, y), interval, "no line: mean over different settings" if mixed else ""]),
        config=STYLE,
    )
    return made


def pareto(groups: Sequence[RunGroup], x: str = "bytes_up_to_target", y: str = "flops_to_target") -> altair.LayerChart:
    """Two outcomes of each group, and the line through those that no other beats in both."""
    alt = need("altair")
    xs, ys, across, up = _results(groups, x), _results(groups, y), describe_in(groups, x), describe_in(groups, y)
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
        raise ConfigError(
            f"no setting has both {x} and {y}; its target may be out of reach: choose others with --x, --y"
        )
    front = set(pareto_front([(across.rank(a), up.rank(b)) for _, a, b in known]))
    x_unit, y_unit = _unit(across.units, xs), _unit(up.units, ys)
    rows = [
        {"label": label, "x": a / x_unit.size, "y": b / y_unit.size, "front": i in front}
        for i, (label, a, b) in enumerate(known)
    ]
    at = [
        alt.X("x:Q", title=titled(across.title, x_unit), scale=alt.Scale(zero=False, padding=12)),
        alt.Y("y:Q", title=titled(up.title, y_unit), scale=alt.Scale(zero=False, padding=12)),
    ]
    labels = [label for label, _, _ in known]
    looks = {
        "color": alt.Color("label:N", scale=alt.Scale(domain=labels, range=_cycled(COLOURS, labels))),
        "shape": alt.Shape("label:N", scale=alt.Scale(domain=labels, range=_cycled(_SHAPES, labels))),
    }
    chart, best = alt.Chart(), alt.Chart().transform_filter("datum.front")
    layers = [
        best.mark_line(strokeWidth=1, strokeDash=[3, 3], color=FAINT).encode(*at),
        chart.mark_point(size=45, strokeWidth=1.5, filled=False, opacity=1).encode(*at, **looks),
        best.mark_point(size=45, strokeWidth=1.5, filled=True, opacity=1).encode(*at, **looks),
    ]
    style = legend_style(labels, SIZE["width"])
    legend = {key: value for key, value in style["legend"].items() if not key.startswith("symbol")}
    lost = len(groups) - len(known)
    missing = f"{lost} not shown: target not reached" if lost else ""
    made: altair.LayerChart = alt.layer(
        *layers,
        data=alt.Data(values=rows),
        title=_said(["filled: Pareto front", _goal(groups, x) or _goal(groups, y), missing]),
        config=style | {"legend": legend | {"symbolSize": 45, "symbolStrokeWidth": 1.5, "rowPadding": 2}},
        **SIZE,
    )
    return made


def heatmap(groups: Sequence[RunGroup], y: str = "accuracy", keys: tuple[str, str] | None = None) -> altair.LayerChart:
    """The mean of an outcome over two settings that were varied; darker is better, or higher if neither way is."""
    alt = need("altair")
    across, down = keys or _two_varied(groups)
    merged: dict[tuple[Any, Any], list[RunGroup]] = {}
    for group in groups:
        own = dict(settings(group.runs[0].config))
        merged.setdefault((own.get(across), own.get(down)), []).append(group)
    cells = [RunGroup("", [run for group in alike for run in group.runs]) for alike in merged.values()]
    check_outcome([run for group in groups for run in group.runs], y)
    results = [to_target([outcome(run, y) for run in cell.runs if run.summary is not None]) for cell in cells]
    declared = describe_in(groups, y)
    unit = _unit(declared.units, results)
    means = [result.estimate.mean / unit.size if result.estimate else None for result in results]
    known = [mean for mean in means if mean is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    reverse = declared.better == "lower"
    rows = []
    for (a, b), mean, result in zip(merged, means, results, strict=True):
        depth = 0.0 if mean is None or low == high else (mean - low) / (high - low)
        dark = mean is not None and (1 - depth if reverse else depth) > 0.55
        said = "–" if result.estimate is None else _short(result, unit)
        rows.append({"a": str(a), "b": str(b), "mean": mean, "said": said, "dark": dark})
    at = [
        alt.X("a:N", title=across, sort=_order(a for a, _ in merged), axis=_plain_axis(alt)),
        alt.Y("b:N", title=down, sort=_order(b for _, b in merged)[::-1], axis=_plain_axis(alt)),
    ]
    scale = alt.Scale(scheme="blues", reverse=reverse, domain=[low, high])
    chart = alt.Chart()
    layers = [
        chart.transform_filter("isValid(datum.mean)")
        .mark_rect(stroke="white")
        .encode(*at, alt.Color("mean:Q", scale=scale, legend=None)),
        *(
            chart.transform_filter(which).mark_text(fontSize=9, color=colour).encode(*at, text=alt.Text("said:N"))
            for which, colour in (("datum.dark", "white"), ("!datum.dark", INK))
        ),
    ]
    mixed = "mean over the other settings varied" if any(len(alike) > 1 for alike in merged.values()) else ""
    lacking = "–: target not reached" if None in means and is_to_target(y) else ""
    way = "higher" if declared.better == "neither" else "better"
    made: altair.LayerChart = alt.layer(
        *layers,
        data=alt.Data(values=rows),
        width=_CELL * len({a for a, _ in merged}),
        height=_ROW * len({b for _, b in merged}),
        title=_said([f"{titled(declared.title, unit)}, darker is {way}", _goal(groups, y), mixed, lacking]),
        config=STYLE,
    )
    return made


def _results(groups: Sequence[RunGroup], field: str) -> list[Reached]:
    if not groups:
        raise ConfigError("a chart needs at least one run, got none; check the path of the runs")
    check_outcome([run for group in groups for run in group.runs], field)
    return [
        to_target([outcome(run, field) for run in group.runs if run.summary is not None], group.mixed)
        for group in groups
    ]


def _unit(units: Sequence[Unit], results: Sequence[Reached]) -> Unit:
    return fitting(units, max((result.estimate.mean for result in results if result.estimate), default=0.0))


def _bar(group: RunGroup, result: Reached, unit: Unit, to_a_target: bool) -> dict[str, Any]:
    estimate = result.estimate
    if estimate is None:
        missed = "not reached" if any(run.config.get("target") for run in group.runs) else "no target"
        said = missed if to_a_target else "not measured"
        return {"label": group.label, "mean": None, "end": 0.0, "said": said}
    mean = estimate.mean / unit.size
    low, high = ((end if end is not None else estimate.mean) / unit.size for end in (estimate.low, estimate.high))
    partly = f"  ({result.reached}/{result.count} reached)" if to_a_target and result.reached < result.count else ""
    ends = {"low": max(low, 0.0), "high": high, "end": high}
    return {"label": group.label, "mean": mean, "said": write(estimate, unit).replace("\n", " ") + partly, **ends}


def _two_varied(groups: Sequence[RunGroup]) -> tuple[str, str]:
    found = list(varied([group.runs[0] for group in groups]))
    if len(found) < 2:
        raise ConfigError(
            f"a heat map needs two settings that vary, got {', '.join(found) or 'none'}; "
            "add runs that differ in another, or draw --kind bars"
        )
    return found[0], found[1]


def _order(values: Any) -> list[str]:
    """Numbers by size, all else in the order of appearance."""
    unique = list(dict.fromkeys(values))
    numbers = all(isinstance(value, int | float) for value in unique)
    return [str(value) for value in (sorted(unique) if numbers else unique)]


def _cycled(looks: Sequence[str], labels: Sequence[str]) -> list[str]:
    return list(islice(cycle(looks), len(labels)))


def _plain_axis(alt: Any) -> Any:
    return alt.Axis(labelAngle=0, domain=False, ticks=False, labelLimit=0)


def _short(result: Reached, unit: Unit) -> str:
    assert result.estimate is not None
    return f"{result.estimate.mean / unit.size:.3g}"


def _lines(results: Sequence[Reached]) -> str:
    """What the lines at the ends of bars are, where there are any."""
    spread = [one.estimate for one in results if one.estimate and one.estimate.low != one.estimate.high]
    words = {"interval": f"{LEVEL:.0%} confidence interval", "range": f"range of fewer than {MIN_SEEDS} seeds"}
    found = [words[band] for band in words if any(one.band == band for one in spread)]
    return f"lines: {', or '.join(found)}" if found else ""


def _goal(groups: Sequence[RunGroup], field: str) -> str:
    targets: dict[Target | None, None] = dict.fromkeys(group.target for group in groups)
    if not is_to_target(field):
        return ""
    goals = [str(target) for target in targets if target]
    return f"target: {goals[0]}" if len(goals) == 1 else "target: of each its own"


def _said(parts: Sequence[str]) -> str:
    return "; ".join(part for part in parts if part)
