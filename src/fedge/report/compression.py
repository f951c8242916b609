"""A chart of what sparse uploads save, over their sparsity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fedge.report.chart_options import ChartOptions
from fedge.report.style import COLOURS, HEIGHT, inline, line_looks, need

if TYPE_CHECKING:
    import altair


_WIDE = ChartOptions(width="double")


def compression(
    sparsities: Sequence[float], bits_per_index: Sequence[float], ratios: Mapping[str, Sequence[float]]
) -> altair.ConcatChart:
    """Return charts of the bits per index of a kept value and of each algorithm's compression ratio, over sparsity."""
    alt = need("altair")
    at = alt.X("sparsity:Q", title="sparsity (%)", scale=alt.Scale(domain=[0, 100]))
    places = [{"sparsity": 100 * s, "bits": bits} for s, bits in zip(sparsities, bits_per_index, strict=True)]
    size = {"width": _WIDE.panel(2), "height": HEIGHT}
    left = alt.Chart(inline(alt, places), **size).mark_line(color=COLOURS[0])
    labels = list(ratios)
    rows = [
        {"label": label, "sparsity": 100 * s, "ratio": ratio}
        for label, values in ratios.items()
        for s, ratio in zip(sparsities, values, strict=True)
    ]
    right = alt.Chart(inline(alt, rows), **size).mark_line()
    ratio = alt.Y("ratio:Q", title="compression ratio", scale=alt.Scale(type="log"))
    figure: altair.ConcatChart = alt.concat(
        left.encode(at, alt.Y("bits:Q", title="bits per index")),
        right.encode(at, ratio, **line_looks(alt, labels)),
        columns=2,
        config=_WIDE.style(labels),
    )
    return figure
