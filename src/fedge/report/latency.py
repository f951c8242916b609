"""Round times at the edge: their distributions over cells and over clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from fedge.core.fields import PERCENT, SECONDS, fitting, titled
from fedge.report.chart_options import PLAIN, ChartOptions, keep_best
from fedge.report.edge_records import EdgeRound, not_recorded, read_edge
from fedge.report.groups import RunGroup
from fedge.report.style import HEIGHT, inline, line_looks, need
from fedge.report.timeline import deadline_rule
from fedge.report.user_accuracy import MAX_LINES, cumulate

if TYPE_CHECKING:
    import altair

_LONG_TAIL = 10  # times the median


class Times(NamedTuple):
    """The times in all rounds of some runs: round times of cells, completion times of clients, and deadlines."""

    cells: list[float]
    clients: list[float]
    deadlines: set[float | None]


def latency(groups: Sequence[RunGroup], options: ChartOptions = PLAIN) -> altair.ConcatChart:
    """Return the share of cells' rounds, and of clients, that is done by a time; one curve per group."""
    alt = need("altair")
    found = [(group.label, measure(_rounds(group))) for group in groups]
    ranked = [((label, times), median(times.clients)) for label, times in found if times.clients]
    if not ranked:
        raise not_recorded()
    kept, left_out = keep_best(ranked, min(options.top, MAX_LINES), "median completion time")
    known = dict(kept)
    deadlines = set().union(*(times.deadlines for times in known.values()))
    deadline = deadlines.pop() if len(deadlines) == 1 else None
    cells = {label: times.cells for label, times in known.items()}
    clients = {label: times.clients for label, times in known.items()}
    columns = 2 if options.width == "double" else 1
    if options.is_log("x"):
        options.check_log("x", _pooled(cells) + _pooled(clients))
    scale = _scale(alt, [_pooled(cells), _pooled(clients)], options.is_log("x"))
    size = {
        "width": options.panel(columns, options.legend_room(list(known))),
        "height": HEIGHT if columns == 2 else HEIGHT * 3 // 4,
    }
    words = options.words
    panels = [
        _panel(alt, cells, (words.group("round time of a cell"), "share of cells' rounds"), scale, size),
        _panel(alt, clients, (words.group("client completion time"), "share of clients"), scale, size, deadline),
    ]
    chart: altair.ConcatChart = alt.concat(
        *panels,
        columns=columns,
        title=options.caption(*_notes(known, len(groups) - len(ranked)), left_out),
        config=options.style(list(known)),
    )
    return chart


def measure(rounds: Sequence[EdgeRound]) -> Times:
    """Return the times of rounds; a cell without selected clients has none."""
    return Times(
        [seconds for line in rounds for seconds in line.latency if seconds is not None],
        [seconds for line in rounds for seconds in line.finish_s],
        {line.deadline_s for line in rounds},
    )


def _rounds(group: RunGroup) -> list[EdgeRound]:
    return [line for run in group.runs for line in read_edge(run)]


def _panel(
    alt: Any,
    values: Mapping[str, Sequence[float]],
    titles: tuple[str, str],
    scale: Any,
    size: Mapping[str, int],
    deadline: float | None = None,
) -> Any:
    slowest, labels = max(_pooled(values)), list(values)
    unit, (percent,) = fitting(SECONDS, slowest), PERCENT
    rows = [
        {"label": label, "x": seconds / unit.size, "share": share / percent.size}
        for label, some in values.items()
        for seconds, share in cumulate(some)
    ]
    axis = alt.Axis(labelOverlap="greedy", labelSeparation=6) if "type" in scale.to_dict() else alt.Axis()
    across = alt.X("x:Q", title=titled(titles[0], unit), scale=scale, axis=axis)
    up = alt.Y("share:Q", title=titled(titles[1], percent), scale=alt.Scale(domain=[0, 100]))
    lines = alt.Chart(inline(alt, rows)).mark_line(interpolate="step-after")
    layers = [lines.encode(across, up, **line_looks(alt, labels))]
    if deadline is not None and deadline <= slowest:
        layers += deadline_rule(alt, deadline / unit.size, "deadline", slowest / unit.size)
    return alt.layer(*layers, **size)


def _scale(alt: Any, panels: Sequence[Sequence[float]], log: bool) -> Any:
    """Return a logarithmic scale if a few times are far longer than most, which would otherwise fill a narrow strip."""
    positive = all(min(values) > 0 for values in panels)
    if log or (positive and any(max(values) > _LONG_TAIL * median(values) for values in panels)):
        return alt.Scale(type="log", nice=False, padding=4)
    return alt.Scale(zero=True, nice=False, padding=4)


def _pooled(values: Mapping[str, Sequence[float]]) -> list[float]:
    return [value for some in values.values() for value in some]


def _notes(known: Mapping[str, Times], num_lost: int) -> list[str]:
    """Return notes on what the shares refer to."""
    num_cells, num_clients = (sum(map(len, column)) for column in list(zip(*known.values(), strict=True))[:2])
    lost = f"{num_lost} not shown: not recorded" if num_lost else ""
    return ["share done by then", f"cells' rounds: {num_cells:,}, clients' rounds: {num_clients:,}", lost]
