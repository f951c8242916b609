"""Paired differences from a baseline with their intervals: a row for each group of runs."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from fedge.core.errors import ConfigError
from fedge.core.fields import Unit, fitting, titled
from fedge.report.analysis_tables import comparable
from fedge.report.chart_options import PLAIN, ChartOptions
from fedge.report.groups import RunGroup, describe_timed
from fedge.report.pairs import Pairing, find_baseline, pair_all
from fedge.report.statistics import LEVEL, MIN_SEEDS
from fedge.report.style import COLOURS, FAINT, INK, need

if TYPE_CHECKING:
    import altair

_ROW = 24  # pixels
_LETTERS = 34  # of a label in one line
_LOOKS = {"better": (COLOURS[2], "triangle-up"), "worse": (COLOURS[1], "triangle-down")}
_OTHER = (FAINT, "circle")
_HIGHER_LOWER = {"higher": (COLOURS[0], "triangle-up"), "lower": (COLOURS[3], "triangle-down")}


def paired_differences(
    groups: Sequence[RunGroup], y: str = "accuracy", baseline: str | None = None, options: ChartOptions = PLAIN
) -> altair.LayerChart:
    """Return each group's mean difference from its baseline over the seeds of both, with its interval.

    `baseline` is as in `find_baseline`. A ConfigError if no group shares a seed with it.
    """
    alt = need("altair")
    alike = comparable(groups, y)
    against = find_baseline(groups, baseline) if baseline else find_baseline(alike or groups)
    found = [one for one in pair_all(alike, y, against) if one.difference is not None]
    declared = describe_timed(groups, y)
    if not found:
        raise ConfigError(
            f"no group of runs shares a seed with {against.title} in which both have {y}; "
            "choose another baseline or result"
        )
    unit = fitting(declared.units, max(abs(one.difference.mean) for one in found if one.difference))
    rows = [_row(one, unit) for one in found]
    verdicts = list(dict.fromkeys(row["verdict"] for row in rows))
    looks = [(_LOOKS | _HIGHER_LOWER).get(verdict, _OTHER) for verdict in verdicts]
    chart = alt.Chart()
    axis = alt.Axis(domain=False, ticks=False, labelLimit=0, labelPadding=6, labelExpr="split(datum.label, '\\n')")
    at = alt.Y("label:N", title=None, sort=None, axis=axis)
    title = options.words.axis_text("x", f"difference in {titled(declared.title, unit)}")
    across = alt.X("mean:Q", title=title, scale=alt.Scale(zero=True, padding=12), axis=alt.Axis())
    colour = alt.Color("verdict:N", scale=alt.Scale(domain=verdicts, range=[colour for colour, _ in looks]))
    shape = alt.Shape("verdict:N", scale=alt.Scale(domain=verdicts, range=[shape for _, shape in looks]))
    tooltip = [alt.Tooltip("label:N"), alt.Tooltip("text:N", title="difference"), alt.Tooltip("pairs:N")]
    layers = [
        alt.Chart(alt.Data(values=[{}])).mark_rule(color=FAINT, strokeDash=[3, 3]).encode(x=alt.XDatum(0)),
        chart.mark_rule(color=INK, strokeWidth=1).encode(at, alt.X("low:Q"), alt.X2("high:Q")),
        chart.mark_point(filled=True, size=60, opacity=1).encode(at, across, colour, shape, tooltip=tooltip),
        chart.mark_text(align="center", dy=-8, fontSize=9, color=INK).encode(at, alt.X("mean:Q"), alt.Text("text:N")),
    ]
    made: altair.LayerChart = alt.layer(
        *layers,
        data=alt.Data(values=rows),
        title=options.caption(f"minus {against.title}, seed by seed", _interval_note(found), _counted(found, groups)),
        config=options.style(verdicts, symbolType="circle", symbolSize=60),
        **options.size | {"height": _ROW * len(rows) + 8},
    )
    return made


def _row(one: Pairing, unit: Unit) -> dict[str, Any]:
    assert one.difference is not None
    mean = one.difference.mean
    low, high = ((end if end is not None else mean) / unit.size for end in (one.difference.low, one.difference.high))
    return {
        "label": fill(one.first, _LETTERS),
        "baseline": one.second,
        "mean": mean / unit.size,
        "low": low,
        "high": high,
        "text": f"{mean / unit.size:+.3g}".replace("-", "−"),
        "pairs": one.pairs,
        "verdict": one.verdict,
    }


def _interval_note(found: Sequence[Pairing]) -> str:
    bands = {one.difference.band for one in found if one.difference and one.difference.low != one.difference.high}
    words = {"interval": f"{LEVEL:.0%} confidence interval", "range": f"range of fewer than {MIN_SEEDS} pairs"}
    named = [words[band] for band in words if band in bands]
    return f"lines: {', or '.join(named)}" if named else ""


def _counted(found: Sequence[Pairing], groups: Sequence[RunGroup]) -> str:
    counts = sorted({one.pairs for one in found})
    pairs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{len(found)} of {len(groups)} groups, {pairs} pairs each"
