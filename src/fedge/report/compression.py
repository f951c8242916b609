"""What dropping more and more of an upload saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fedge.report.charts import COLOURS, DASHES
from fedge.report.style import SIZE, legend_style, need

if TYPE_CHECKING:
    import altair


def compression(
    sparsities: Sequence[float], bits_per_place: Sequence[float], ratios: Mapping[str, Sequence[float]]
) -> altair.HConcatChart:
    """Bits for the place of a kept value, and how many times smaller each algorithm's upload is, against sparsity."""
    alt = need("altair")
    at = alt.X("sparsity:Q", title="share of the changes that is dropped (%)", scale=alt.Scale(domain=[0, 100]))
    places = [{"sparsity": 100 * s, "bits": bits} for s, bits in zip(sparsities, bits_per_place, strict=True)]
    left = alt.Chart(alt.Data(values=places), **SIZE).mark_line(color=COLOURS[0])
    labels = list(ratios)
    looks = {
        "stroke": alt.Stroke("label:N", scale=alt.Scale(domain=labels, range=COLOURS[: len(labels)])),
        "strokeDash": alt.StrokeDash("label:N", scale=alt.Scale(domain=labels, range=DASHES[: len(labels)])),
    }
    rows = [
        {"label": label, "sparsity": 100 * s, "ratio": ratio}
        for label, values in ratios.items()
        for s, ratio in zip(sparsities, values, strict=True)
    ]
    right = alt.Chart(alt.Data(values=rows), **SIZE).mark_line()
    figure: altair.HConcatChart = alt.hconcat(
        left.encode(at, alt.Y("bits:Q", title="bits for the place of a kept value")),
        right.encode(at, alt.Y("ratio:Q", title="times smaller than whole", scale=alt.Scale(type="log")), **looks),
        config=legend_style(labels, 2 * SIZE["width"]),
    )
    return figure
