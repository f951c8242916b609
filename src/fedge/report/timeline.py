"""A Gantt chart of one round at the edge: the phases of each client over time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from fedge.core.errors import ConfigError
from fedge.core.fields import SECONDS, Unit, fitting, titled
from fedge.report.chart_options import PLAIN, ChartOptions
from fedge.report.edge_records import EdgeRound
from fedge.report.style import AREAS, FAINT, INK, inline, need
from fedge.runs.data_names import NO_NAMES, DataNames, cut

if TYPE_CHECKING:
    import altair

MOST_CLIENTS = 60
"""Maximum number of rows that fit a page."""

PHASES = {"download": "#0072B2", "compute": "#56B4E9", "wait": "#DDDDDD", "upload": "#D55E00"}
"""The phases in order, with colours that also differ in lightness, for grey print."""

_ROW = 12  # pixels
_SMALL = 9  # font size in pixels beside bars
_LETTER = 5  # width of a letter in pixels
_CELL_ROOM, _LATE_ROOM = 48, 64  # pixels for the cells' names and the times of late clients
_LONGEST = 24  # maximum number of letters of a client's name beside its bar
_GAP = 0.4  # rows between cells
_BEYOND = 1.5  # end of the axis in deadlines, so that one extremely slow client does not compress all others
_FAR = 2.0  # times the slowest client: a later deadline is noted and not drawn, for the same reason


class TimeSpan(NamedTuple):
    """The range of the time axis, in seconds."""

    end: float
    slowest: float
    deadline: float | None
    unit: Unit

    @property
    def shows_deadline(self) -> bool:
        return self.deadline is not None and self.deadline <= self.end

    def written(self, seconds: float, digits: int = 4) -> str:
        return f"{seconds / self.unit.size:.{digits}g} {self.unit.name}"


def timeline(line: EdgeRound, names: DataNames = NO_NAMES, options: ChartOptions = PLAIN) -> altair.LayerChart:
    """Return a bar for each client, by cell and then by completion time, with the deadline as a line."""
    if not line.clients:
        raise ConfigError(f"no client took part in round {line.round}, so it has no timeline; choose another --round")
    alt = need("altair")
    shown = _choose(line)
    labels = [cut(names.client_label(line.clients[i]), _LONGEST) for i in shown]
    span = _span(max(line.finish_s[i] for i in shown), line.deadline_s)
    places = _places(line, shown)
    num_rows = places[-1] + 1
    rows = list(zip(shown, places, labels, strict=True))
    beside = _LETTER * max(map(len, labels)) + 10 + (_CELL_ROOM if len(line.occupancy) > 1 else 0)
    width = options.canvas - 10 - beside - options.legend_room(list(PHASES)) - (_LATE_ROOM if any(line.late) else 0)
    y = {"scale": alt.Scale(domain=[0, num_rows], nice=False, reverse=True), "axis": None}
    layers = [
        _bars(alt, [bar for row in rows for bar in _phases(line, *row)], span, y, ["name:N"] if names.clients else []),
        *_texts(alt, [_name(line, *row, span) for row in rows], y),
        *_cells(alt, line, shown, places, y, max(map(len, labels))),
        *_deadline(alt, span),
    ]
    chart: altair.LayerChart = alt.layer(
        *layers,
        width=width,
        height=_ROW * num_rows,
        title=options.caption(*_notes(line, names, len(shown), span)),
        config=options.style(list(PHASES), **AREAS),
    )
    return chart


def _span(slowest: float, deadline: float | None) -> TimeSpan:
    end = slowest
    if deadline is not None and deadline <= _FAR * slowest:
        end = min(max(slowest, deadline), _BEYOND * deadline)
    return TimeSpan(end, slowest, deadline, fitting(SECONDS, end))


def _choose(line: EdgeRound) -> list[int]:
    """Return the indices of at most `MOST_CLIENTS` clients, evenly spaced in the order of cell and completion time."""
    order = sorted(range(len(line.clients)), key=lambda i: (line.cell[i], line.finish_s[i], line.clients[i]))
    count = min(len(order), MOST_CLIENTS)
    return [order[number * len(order) // count] for number in range(count)]


def _places(line: EdgeRound, shown: Sequence[int]) -> list[float]:
    """Return the first row of each client, with a gap before every cell except the first."""
    cells = list(dict.fromkeys(line.cell[i] for i in shown))
    return [row + _GAP * cells.index(line.cell[i]) for row, i in enumerate(shown)]


def _phases(line: EdgeRound, i: int, place: float, label: str) -> list[dict[str, Any]]:
    """Return the phases of a client in order; times in seconds."""
    start, bars = 0.0, []
    times = (line.down_s[i], line.compute_s[i], line.wait_s[i], line.up_s[i])
    for phase, seconds in zip(PHASES, times, strict=True):
        if seconds > 0:
            what = {"client": line.clients[i], "name": label, "phase": phase, "seconds": seconds}
            bars.append(what | {"start": start, "end": start + seconds, "place": place})
        start += seconds
    return bars


def _bars(alt: Any, phases: Sequence[dict[str, Any]], span: TimeSpan, y: dict[str, Any], named: Sequence[str]) -> Any:
    size = span.unit.size
    across = alt.Scale(domain=[0, span.end / size or 1.0], nice=span.deadline is None)
    chart = alt.Chart(inline(alt, phases)).transform_calculate(
        left=f"datum.start / {size}",
        right=f"datum.end / {size}",
        top="datum.place + 0.12",
        bottom="datum.place + 0.88",
    )
    return chart.mark_rect(clip=True).encode(
        alt.X("left:Q", title=titled("time since the start of the round", span.unit), scale=across),
        alt.X2("right:Q"),
        alt.Y("top:Q", **y),
        alt.Y2("bottom:Q"),
        alt.Color("phase:N", scale=alt.Scale(domain=[*PHASES], range=[*PHASES.values()])),
        tooltip=["client:Q", *named, "phase:N", alt.Tooltip("seconds:Q", format=".3~g")],
    )


def _name(line: EdgeRound, i: int, place: float, label: str, span: TimeSpan) -> dict[str, Any]:
    """Return the label of a client and, for the end of its bar, its completion time if it was late."""
    late = f"late: {span.written(line.finish_s[i], 3)}" if line.late[i] else ""
    at = min(line.finish_s[i], span.end) / span.unit.size
    return {"client": line.clients[i], "name": label, "middle": place + 0.5, "at": at, "late": late}


def _texts(alt: Any, names: Sequence[dict[str, Any]], y: dict[str, Any]) -> list[Any]:
    chart = alt.Chart(inline(alt, names)).encode(alt.Y("middle:Q", **y))
    small = {"fontSize": _SMALL, "baseline": "middle"}
    labels = chart.mark_text(align="right", dx=-5, color=INK, **small)
    late = chart.transform_filter("datum.late").mark_text(align="left", dx=4, color=INK, fontWeight="bold", **small)
    return [
        labels.encode(x=alt.value(0), text=alt.Text("name:N")),
        late.encode(alt.X("at:Q"), alt.Text("late:N")),
    ]


def _cells(
    alt: Any, line: EdgeRound, shown: Sequence[int], places: Sequence[float], y: dict[str, Any], letters: int
) -> list[Any]:
    """Return the names of cells beside their clients; none for a single cell."""
    if len(line.occupancy) == 1:
        return []
    pairs = [(line.cell[i], place) for i, place in zip(shown, places, strict=True)]
    groups = [(cell, [place for _, place in group]) for cell, group in groupby(pairs, key=lambda pair: pair[0])]
    rows = [{"cell": f"cell {cell}", "first": own[0], "last": own[-1] + 1} for cell, own in groups]
    middle = alt.Chart(inline(alt, rows)).transform_calculate(middle="(datum.first + datum.last) / 2")
    left = -10 - _LETTER * letters  # font size of the clients' labels
    text = middle.mark_text(align="right", dx=left - 4, fontSize=_SMALL, baseline="middle", color=FAINT)
    return [
        text.encode(alt.Y("middle:Q", **y), x=alt.value(0), text=alt.Text("cell:N")),
        alt.Chart(inline(alt, rows))
        .mark_rule(strokeWidth=0.75, color=FAINT)
        .encode(alt.Y("first:Q", **y), alt.Y2("last:Q"), x=alt.value(left)),
    ]


def deadline_rule(alt: Any, at: float, text: str, end: float) -> list[Any]:
    """Return a line at a deadline, with its text above; in the right half of the axis, the text ends at the line."""
    marked = alt.Chart(inline(alt, [{"deadline": at}])).encode(alt.X("deadline:Q"))
    side = {"align": "right", "dx": 2} if at > end / 2 else {"align": "left", "dx": -2}
    label = marked.mark_text(text=text, baseline="bottom", dy=-3, fontSize=_SMALL, color=INK, **side)
    return [marked.mark_rule(strokeDash=[3, 3], strokeWidth=1, color=INK), label.encode(y=alt.value(0))]


def _deadline(alt: Any, span: TimeSpan) -> list[Any]:
    if span.deadline is None or not span.shows_deadline:
        return []
    size = span.unit.size
    return deadline_rule(alt, span.deadline / size, f"deadline {span.written(span.deadline)}", span.end / size)


def _notes(line: EdgeRound, names: DataNames, num_shown: int, span: TimeSpan) -> list[str]:
    count = len(line.clients)
    late = f", {sum(line.late):,} late" if any(line.late) else ""
    some = f"; {num_shown} shown, evenly spaced" if num_shown < count else ""
    notes = [f"round {line.round:,}: {count:,} client{'' if count == 1 else 's'}{late}{some}"]
    if names.clients:
        notes.append("clients are shown by their names in the data")
    if any(line.wait_s):
        notes.append(
            "wait: for the uplink; all of it is drawn before the upload, though other uploads may have interrupted it"
        )
    if span.end < span.slowest:
        notes.append(f"bars longer than {span.written(span.end)} are cut there")
    if span.deadline is not None and not span.shows_deadline:
        notes.append(f"the deadline, {span.written(span.deadline)}, is beyond the axis")
    return notes
