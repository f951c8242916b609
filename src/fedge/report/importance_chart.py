"""Parameter importance as bars: the share of a result's variance that each setting explains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedge.core.fields import describe
from fedge.report.chart_options import PLAIN, ChartOptions
from fedge.report.groups import RunView, own_fields
from fedge.report.importance import Importance, measure_importance
from fedge.report.row_labels import RowLabels
from fedge.report.style import COLOURS, FAINT, INK, inline, need

if TYPE_CHECKING:
    import altair

_BAR = 20  # pixels of a bar with its gap


def importance_bars(runs: Sequence[RunView], y: str = "accuracy", options: ChartOptions = PLAIN) -> altair.LayerChart:
    """Return a bar per varied setting, and grey bars for interactions and seeds; ConfigError for too few runs."""
    alt = need("altair")
    found = measure_importance(runs, y)
    title = describe(y, own_fields(runs)).title
    rows = _rows(found, options)
    labels = RowLabels([row["label"] for row in rows], options)
    for row, label in zip(rows, labels.texts, strict=True):
        row["label"] = label
    at = labels.encoding(alt)
    scale = alt.Scale(domain=[0, max(100.0, *(row["share"] for row in rows)) * 1.12], nice=False)
    across = alt.X(
        "share:Q",
        title=options.words.axis_text("x", f"variance of {title} explained (%)"),
        scale=scale,
        axis=alt.Axis(values=[0, 25, 50, 75, 100]),
    )
    chart = alt.Chart()
    chart_layers = [
        chart.mark_bar(height=11, opacity=0.8).encode(at, across, alt.Color("colour:N", scale=None)),
        chart.mark_text(align="left", dx=5, fontSize=9, color=INK).encode(at, alt.X("share:Q"), alt.Text("text:N")),
    ]
    made: altair.LayerChart = alt.layer(
        *chart_layers,
        data=inline(alt, rows),
        title=options.caption(*_notes(found, len(runs))),
        config=options.style(),
        **options.size | {"height": labels.height(_BAR)},
    )
    return made


def _rows(found: Importance, options: ChartOptions) -> list[dict[str, Any]]:
    shares = [(options.words.setting(one.setting), one.share, COLOURS[0]) for one in found.settings]
    shares.append(("interactions" if found.seeds is not None else "interactions and seeds", found.interactions, FAINT))
    if found.seeds is not None:
        shares.append(("seeds", found.seeds, FAINT))
    return [
        {"label": label, "share": 100 * share, "text": f"{100 * share:.1f}%", "colour": colour}
        for label, share, colour in shares
    ]


def _notes(found: Importance, selected: int) -> list[str]:
    notes = [f"{found.runs} of {selected} runs"]
    if found.rough:
        notes.append("rough: few runs for the number of values")
    if abs(found.shared) >= 0.005:
        notes.append(f"{100 * found.shared:.1f}% not attributable to one setting")
    return notes
