"""A result of each group of runs as a bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedge.core.fields import Unit, is_to_target
from fedge.report.chart_options import PLAIN, ChartOptions, number_axis
from fedge.report.group_results import group_results, target_note, unit_of
from fedge.report.groups import RunGroup, describe_timed
from fedge.report.row_labels import RowLabels
from fedge.report.statistics import Reached, interval_note
from fedge.report.style import COLOURS, INK, inline, need
from fedge.report.tables import write
from fedge.report.text_width import text_width

if TYPE_CHECKING:
    import altair

_BAR = 20  # pixels of a bar with its gap
_SMALL = 9  # font size in pixels at the end of a bar
_LEAST = 40  # least length in pixels of the longest bar, however long the texts are


def bars(groups: Sequence[RunGroup], y: str = "rounds_to_target", options: ChartOptions = PLAIN) -> altair.LayerChart:
    """Return a result of each group with its interval, the best on top; "not reached" where the target was not."""
    alt, results = need("altair"), group_results(groups, y)
    declared = describe_timed(groups, y)
    unit = unit_of(declared.units, results)
    rows = [_bar(group, result, unit, is_to_target(y)) for group, result in zip(groups, results, strict=True)]
    # groups without a result come last
    rows.sort(key=lambda row: float("inf") if row["mean"] is None else declared.rank(row["mean"]))
    measured = [row for row in rows if row["mean"] is not None]
    options.check_log("x", [row["mean"] for row in measured])
    if options.is_log("x"):  # the interval of few seeds may include 0, which has no logarithm
        for row in measured:
            row["low"] = max(row["low"], row["mean"] / 10)
    labels = RowLabels([row["label"] for row in rows], options)
    at = labels.encoding(alt)
    room = options.canvas - 22 - labels.width
    start = min((row["low"] for row in measured), default=1.0) / 2 if options.is_log("x") else 0.0
    for row, label in zip(rows, labels.texts, strict=True):
        row |= {"label": label, "start": start, "end": row.get("high", start)}
    scale = options.scale(alt, "x", domain=[start, _axis_end(measured, room, start)], nice=False)
    ticks = number_axis(alt, declared, unit, options.is_log("x"))
    across = alt.X("mean:Q", title=options.words.axis("x", declared, unit), scale=scale, axis=ticks)
    chart = alt.Chart()
    layers = [
        chart.mark_bar(color=COLOURS[0], opacity=0.75, height=11).encode(at, across, alt.X2("start:Q")),
        chart.mark_rule(color=INK, strokeWidth=1).encode(at, alt.X("low:Q"), alt.X2("high:Q")),
        chart.mark_text(align="left", dx=5, fontSize=9, color=INK).encode(at, alt.X("end:Q"), alt.Text("text:N")),
    ]
    mixed = "no line: mean over different settings" if any(group.mixed for group in groups) else ""
    made: altair.LayerChart = alt.layer(
        *layers,
        data=inline(alt, rows),
        title=options.caption(
            target_note(groups, y), interval_note([one.estimate for one in results if one.estimate], "seeds"), mixed
        ),
        config=options.style(),
        **options.size | {"height": labels.height(_BAR)},
    )
    return made


def _axis_end(measured: Sequence[Mapping[str, Any]], room: float, start: float) -> float:
    """Return the end of an axis of `room` pixels at which every bar's text fits; logarithmic if it starts above 0."""
    stretched = ((row["high"], room / max(room - text_width(row["text"], _SMALL) - 8, _LEAST)) for row in measured)
    ends = (start * (high / start) ** factor if start else high * factor for high, factor in stretched)
    return max(ends, default=2 * start) or 1.0


def _bar(group: RunGroup, result: Reached, unit: Unit, to_a_target: bool) -> dict[str, Any]:
    estimate = result.estimate
    if estimate is None:
        missed = "not reached" if any(run.config.get("target") for run in group.runs) else "no target"
        text = missed if to_a_target else "not measured"
        return {"label": group.label, "mean": None, "text": text}
    mean = estimate.mean / unit.size
    low, high = ((end if end is not None else estimate.mean) / unit.size for end in (estimate.low, estimate.high))
    partly = f" ({result.reached}/{result.count} reached)" if to_a_target and result.reached < result.count else ""
    ends = {"low": max(low, 0.0), "high": high}
    return {"label": group.label, "mean": mean, "text": write(estimate, unit).partition("\n")[0] + partly, **ends}
