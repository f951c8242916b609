"""Paired differences from a baseline with their intervals: a row for each group of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedge.core.errors import ConfigError
from fedge.core.fields import Unit, fitting
from fedge.report.analysis_tables import comparable
from fedge.report.chart_options import PLAIN, ChartOptions
from fedge.report.groups import RunGroup, describe_timed
from fedge.report.pairs import Pairing, difference_title, find_baseline, pair_all
from fedge.report.row_labels import RowLabels
from fedge.report.statistics import interval_note
from fedge.report.style import COLOURS, FAINT, HALO, INK, POINTS, inline, need
from fedge.report.tables import num_decimals

if TYPE_CHECKING:
    import altair

_ROW = 24  # pixels
_LOOKS = {"better": (COLOURS[2], "triangle-up"), "worse": (COLOURS[1], "triangle-down")}
_NONE, _OTHER = "no difference shown", (FAINT, "circle")
_HIGHER_LOWER = {"higher": (COLOURS[0], "triangle-up"), "lower": (COLOURS[3], "triangle-down")}


def paired_differences(
    groups: Sequence[RunGroup], y: str = "accuracy", baseline: str | None = None, options: ChartOptions = PLAIN
) -> altair.LayerChart:
    """Return each group's mean difference from its baseline over the seeds of both, with its interval.

    `baseline` is as in `find_baseline`. Raises ConfigError if no group shares a seed with it.
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
    largest = max(abs(one.difference.mean) for one in found if one.difference) / unit.size
    decimals = num_decimals(largest)
    spread = interval_note([one.difference for one in found if one.difference], "pairs")
    labels = RowLabels([one.first for one in found], options)
    rows = [_row(one, label, unit, decimals) for one, label in zip(found, labels.texts, strict=True)]
    known = {row["verdict"] for row in rows}
    verdicts = [verdict for verdict in (*_LOOKS, *_HIGHER_LOWER, _NONE) if verdict in known]
    looks = [(_LOOKS | _HIGHER_LOWER).get(verdict, _OTHER) for verdict in verdicts]
    chart = alt.Chart()
    at = labels.encoding(alt)
    title = options.words.axis_text("x", difference_title(declared, unit))
    across = alt.X("mean:Q", title=title, scale=alt.Scale(zero=True, padding=12), axis=alt.Axis())
    colour = alt.Color("verdict:N", scale=alt.Scale(domain=verdicts, range=[colour for colour, _ in looks]))
    shape = alt.Shape("verdict:N", scale=alt.Scale(domain=verdicts, range=[shape for _, shape in looks]))
    tooltip = [alt.Tooltip("label:N"), alt.Tooltip("text:N", title="difference"), alt.Tooltip("pairs:N")]
    layers = [
        alt.Chart(inline(alt, [{}])).mark_rule(color=FAINT, strokeDash=[3, 3]).encode(x=alt.XDatum(0)),
        chart.mark_rule(color=INK, strokeWidth=1).encode(at, alt.X("low:Q"), alt.X2("high:Q")),
        chart.mark_point(filled=True, size=60, opacity=1).encode(at, across, colour, shape, tooltip=tooltip),
        *(
            chart.mark_text(dy=-9, fontSize=9, **look).encode(at, alt.X("mean:Q"), alt.Text("text:N"))
            for look in (HALO, {"color": INK})  # the line at 0 may cross the text
        ),
    ]
    made: altair.LayerChart = alt.layer(
        *layers,
        data=inline(alt, rows),
        title=options.caption(f"minus {against.title}, seed by seed", spread, _counted(found, groups)),
        config=options.style(verdicts, **POINTS),
        **options.size | {"height": labels.height(_ROW) + 8},
    )
    return made


def _row(one: Pairing, label: str, unit: Unit, decimals: int) -> dict[str, Any]:
    assert one.difference is not None
    mean = one.difference.mean
    low, high = ((end if end is not None else mean) / unit.size for end in (one.difference.low, one.difference.high))
    return {
        "label": label,
        "baseline": one.second,
        "mean": mean / unit.size,
        "low": low,
        "high": high,
        "text": _signed(mean / unit.size, decimals),
        "pairs": one.pairs,
        "verdict": one.verdict,
    }


def _signed(value: float, decimals: int) -> str:
    text = f"{value:+.{decimals}f}".replace("-", "−")
    return text if text.strip("+−0.") else "0"


def _counted(found: Sequence[Pairing], groups: Sequence[RunGroup]) -> str:
    counts = sorted({one.pairs for one in found})
    pairs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{len(found)} of {len(groups)} groups, {pairs} pair{'' if counts == [1] else 's'} each"
