"""A chart of the distribution of a data set's classes over clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedge.core.printable import printable
from fedge.report.style import COLOURS, HEIGHT, STYLE, TICKS, inline, need

if TYPE_CHECKING:
    import altair

MOST_CLIENTS = 100
"""Maximum number of clients in the heat map; readers cannot distinguish more."""

_NUM_MARKS = 10
_NUM_BARS = 20
_HEAT_MAP, _HISTOGRAM = 280, 180  # pixels; with axes and legend, the width of both columns of a paper


def class_distribution(
    classes: Mapping[int, Sequence[int] | None],
    sizes: Sequence[int],
    num_classes: int,
    class_names: Sequence[str] = (),
    client_names: Sequence[str] = (),
) -> altair.HConcatChart:
    """Return the samples of each class that some clients have, beside a histogram of all clients' sizes.

    Clients of a regression have no classes (None); without classes the chart is the histogram alone. Classes and
    clients without names are shown by their numbers.
    """
    alt = need("altair")
    labels = [printable(name) for name in class_names] or [*map(str, range(num_classes))]
    clients = {client: printable(client_names[client]) if client_names else str(client) for client in classes}
    cells = [
        {"client": clients[client], "class": labels[label], "samples": count}
        for client, counts in classes.items()
        for label, count in enumerate(counts or ())
        if count
    ]
    parts = [_heat(alt, cells, [*clients.values()], labels)] if cells else []
    chart: altair.HConcatChart = alt.hconcat(*parts, _histogram(alt, sizes), config=STYLE).resolve_legend(
        color="independent"
    )
    return chart


def _heat(alt: Any, cells: Sequence[Mapping[str, Any]], clients: Sequence[str], classes: Sequence[str]) -> Any:
    def along(name: str, values: Sequence[str]) -> dict[str, Any]:
        marked = values[:: -(-len(values) // _NUM_MARKS)]
        axis = alt.Axis(values=marked, tickCount=len(marked), labelAngle=0, domain=False, ticks=False)
        scale = alt.Scale(domain=values, padding=0, reverse=name == "class")  # vertical axes count from the bottom up
        return {"shorthand": f"{name}:N", "title": name, "axis": axis, "scale": scale}

    legend = alt.Legend(
        title="samples", orient="right", symbolType="square", gradientLength=120, titleFontWeight="normal"
    )
    return (
        alt.Chart(inline(alt, cells), width=_HEAT_MAP, height=HEIGHT)
        .mark_rect()
        .encode(
            alt.X(**along("client", clients)),
            alt.Y(**along("class", classes)),
            # White means no sample: a single sample is already tinted.
            alt.Color("samples:Q", scale=alt.Scale(scheme="blues", domainMin=0), legend=legend),
        )
    )


def _histogram(alt: Any, sizes: Sequence[int]) -> Any:
    width = -(-(max(sizes) - min(sizes) + 1) // _NUM_BARS)
    counts = Counter((size - min(sizes)) // width for size in sizes)
    bars = [
        {"from": min(sizes) + bar * width, "to": min(sizes) + (bar + 1) * width, "clients": count}
        for bar, count in sorted(counts.items())
    ]
    whole = alt.Axis(tickCount=min(TICKS, max(counts.values())), format=",d")
    return (
        alt.Chart(inline(alt, bars), width=_HISTOGRAM, height=HEIGHT)
        .mark_bar(color=COLOURS[0], stroke="white", strokeWidth=0.5)
        .encode(
            alt.X("from:Q", title="training samples per client", scale=alt.Scale(zero=False)),
            alt.X2("to:Q"),
            alt.Y("clients:Q", title="clients", axis=whole),
            alt.Y2(datum=0),
        )
    )
