"""How long rounds take at the edge: the distribution over cells, and over clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from fedge.core.fields import PERCENT, SECONDS, fitting, titled
from fedge.report.charts import COLOURS, DASHES
from fedge.report.edge import EdgeRound, not_recorded, read_edge
from fedge.report.groups import RunGroup
from fedge.report.style import FAINT, SIZE, legend_style, need
from fedge.report.users import cumulate

if TYPE_CHECKING:
    import altair

_LONG_TAIL = 10  # times the median


class Times(NamedTuple):
    """Of all rounds of some runs: seconds of each cell's round, seconds until each client was done, and deadlines."""

    cells: list[float]
    clients: list[float]
    deadlines: set[float | None]


def latency(groups: Sequence[RunGroup]) -> altair.HConcatChart:
    """Which share of the cells' rounds, and of the clients, is done after some seconds; one curve a group."""
    alt = need("altair")
    found = {group.label: measure(_rounds(group)) for group in groups}
    known = {label: times for label, times in found.items() if times.clients}
    if not known:
        raise not_recorded()
    labels = list(known)
    deadlines = set().union(*(times.deadlines for times in known.values()))
    deadline = deadlines.pop() if len(deadlines) == 1 else None
    cells = {label: times.cells for label, times in known.items()}
    clients = {label: times.clients for label, times in known.items()}
    scale = _scale(alt, [_pooled(cells), _pooled(clients)])
    panels = [
        _panel(alt, cells, ("latency of a cell", "share of cells' rounds"), scale),
        _panel(alt, clients, ("finish of a client", "share of clients"), scale, deadline),
    ]
    chart: altair.HConcatChart = alt.hconcat(
        *panels,
        title=_said(known, len(groups) - len(known)),
        config=legend_style(labels, 2 * SIZE["width"]),
    )
    return chart


def measure(rounds: Sequence[EdgeRound]) -> Times:
    """What rounds took; cells in which nobody was asked had none."""
    return Times(
        [seconds for line in rounds for seconds in line.latency if seconds is not None],
        [seconds for line in rounds for seconds in line.finish_s],
        {line.deadline_s for line in rounds},
    )


def _rounds(group: RunGroup) -> list[EdgeRound]:
    return [line for run in group.runs for line in read_edge(run)]


def _panel(
    alt: Any, values: Mapping[str, Sequence[float]], titles: tuple[str, str], scale: Any, deadline: float | None = None
) -> Any:
    slowest, labels = max(_pooled(values)), list(values)
    unit, (percent,) = fitting(SECONDS, slowest), PERCENT
    rows = [
        {"label": label, "x": seconds / unit.size, "share": share / percent.size}
        for label, some in values.items()
        for seconds, share in cumulate(some)
    ]
    colours, dashes = (alt.Scale(domain=labels, range=[*islice(cycle(r), len(labels))]) for r in (COLOURS, DASHES))
    across = alt.X("x:Q", title=titled(titles[0], unit), scale=scale)
    up = alt.Y("share:Q", title=titled(titles[1], percent), scale=alt.Scale(domain=[0, 100]))
    looks = {"stroke": alt.Stroke("label:N", scale=colours), "strokeDash": alt.StrokeDash("label:N", scale=dashes)}
    layers = [alt.Chart(alt.Data(values=rows)).mark_line(interpolate="step-after").encode(across, up, **looks)]
    if deadline is not None and deadline <= slowest:
        layers += _deadline(alt, deadline / unit.size)
    return alt.layer(*layers, **SIZE)


def _scale(alt: Any, panels: Sequence[Sequence[float]]) -> Any:
    """By powers of ten where few take far longer than most: else most would be one step at the left."""
    positive = all(min(values) > 0 for values in panels)
    if positive and any(max(values) > _LONG_TAIL * median(values) for values in panels):
        return alt.Scale(type="log", nice=False, padding=4)
    return alt.Scale(zero=True, nice=False, padding=4)


def _pooled(values: Mapping[str, Sequence[float]]) -> list[float]:
    return [value for some in values.values() for value in some]


def _deadline(alt: Any, at: float) -> list[Any]:
    rule = alt.Chart(alt.Data(values=[{"x": at}])).encode(alt.X("x:Q"))
    label = rule.mark_text(text="deadline", baseline="bottom", dy=-3, fontSize=9, color=FAINT)
    return [
        rule.mark_rule(strokeDash=[3, 3], strokeWidth=0.75, color=FAINT),
        label.encode(y=alt.value(0)),
    ]


def _said(known: Mapping[str, Times], num_lost: int) -> str:
    """What a share is of."""
    num_cells, num_clients = (sum(map(len, column)) for column in list(zip(*known.values(), strict=True))[:2])
    lost = f"; {num_lost} not shown: not recorded" if num_lost else ""
    return f"share done by then; cells' rounds: {num_cells:,}, clients' rounds: {num_clients:,}{lost}"
