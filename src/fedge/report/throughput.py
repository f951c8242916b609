"""Bytes per second that a server recently sent and received, from its event log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from fedge.core.errors import ConfigError
from fedge.core.fields import describe, fitting
from fedge.report.chart_options import PLAIN, ChartOptions
from fedge.report.groups import RunView
from fedge.report.style import COLOURS, inline, need
from fedge.runs.last_events import LAST_BYTES, read_last_events

if TYPE_CHECKING:
    import altair

WINDOW_S = 3600.0
"""The longest period shown, in seconds."""
MAX_STEPS = 120
_STEPS_S = (1, 2, 5, 10, 15, 30)  # steps of the mean over time
_ROUND_ENDS = ("commit", "void")
_LATEST_S = datetime(9999, 1, 1, tzinfo=UTC).timestamp()  # Python's calendar ends a year later
DIRECTIONS = ("down", "up")


class Transfer(NamedTuple):
    """Bytes transferred between two times, in seconds since 1970."""

    direction: str
    start_s: float
    end_s: float
    num_bytes: float


class Throughput(NamedTuple):
    """Mean bytes per second by direction, in steps of `step_s` from `start_s` on."""

    start_s: float
    step_s: int
    rates: dict[str, list[float]]


def measure_throughput(events: Sequence[dict[str, Any]], cut: bool = False) -> Throughput | None:
    """Return the throughput of the last hour of events; None without transfers.

    A transfer counts evenly from its first to its last event. If older events were `cut` off, counting starts at the
    first complete round, because some earlier transfers are unknown.
    """
    timed = [(moment, event) for event in events if (moment := _moment(event)) is not None]
    if cut:
        first = next((i for i, (_, event) in enumerate(timed) if event.get("event") in _ROUND_ENDS), len(timed))
        timed = timed[first:]
    transfers = list(_transfers(timed))
    if not transfers:
        return None
    end = max(moment for moment, _ in timed)
    start = float(int(max(timed[0][0], end - WINDOW_S)))
    least = (end - start) / MAX_STEPS
    step = next((each for each in _STEPS_S if each >= least), 30)
    num_steps = int((end - start) // step) + 1
    rates = {direction: [0.0] * num_steps for direction in DIRECTIONS}
    for one in transfers:
        for at, share in _shares(one, start, step, num_steps):
            rates[one.direction][at] += one.num_bytes * share / step
    return Throughput(start, step, rates)


def throughput_chart(run: RunView, options: ChartOptions = PLAIN) -> altair.Chart:
    """Return bytes per second down and up over time. Raises ConfigError if the run has no such events."""
    alt = need("altair")
    last = read_last_events(run.path, LAST_BYTES)
    found = measure_throughput(last.events, last.cut)
    if found is None:
        reason = "it was not run by a server" if not last.events else "no transfer is complete yet"
        raise ConfigError(f"{run.path.name} has no throughput: {reason}")
    unit = fitting(describe("bytes_up").units, max(map(max, found.rates.values())))
    rows = [
        {"time": 1000 * (found.start_s + at * found.step_s), "direction": direction, "rate": rate / unit.size}
        for direction, rates in found.rates.items()
        for at, rate in enumerate([*rates, rates[-1]])  # the end of the last step
    ]
    end = found.start_s + found.step_s * len(found.rates["down"])
    window = f"{_clock(found.start_s)} to {_clock(end)} UTC, the last {_minutes(end - found.start_s)} with events"
    notes = (f"mean over {found.step_s} s", window, "payloads of training; evaluations are not logged")
    chart: altair.Chart = (
        alt.Chart(
            inline(alt, rows),
            title=options.caption(*notes),
            config=options.style(DIRECTIONS),
            **options.size,
        )
        .mark_line(interpolate="step-after", clip=True)
        .encode(
            alt.X(
                "time:T",
                title=options.words.axis_text("x", "time (UTC)"),
                scale=alt.Scale(type="utc", nice=False),
                axis=alt.Axis(format="%H:%M:%S", tickCount=4, labelFlush=True),
            ),
            alt.Y(
                "rate:Q", title=options.words.axis_text("y", f"throughput ({unit.name}/s)"), scale=alt.Scale(zero=True)
            ),
            alt.Color("direction:N", scale=alt.Scale(domain=list(DIRECTIONS), range=list(COLOURS[:2]))),
            alt.StrokeDash("direction:N", scale=alt.Scale(domain=list(DIRECTIONS), range=[[1, 0], [4, 2]])),
            tooltip=[
                alt.Tooltip("utchoursminutesseconds(time):T", title="time"),
                alt.Tooltip("direction:N"),
                alt.Tooltip("rate:Q", format=".4g"),
            ],
        )
    )
    return chart


def _transfers(timed: Sequence[tuple[float, dict[str, Any]]]) -> Iterator[Transfer]:
    """Pair the events of each client's task: fetch with work, upload with receive or reject."""
    offered: dict[Any, float] = {}
    began: dict[tuple[str, Any], float] = {}
    for moment, event in timed:
        kind, client, size = event.get("event"), event.get("client"), event.get("bytes")
        if not isinstance(client, int):
            continue
        known = float(size) if isinstance(size, int | float) and not isinstance(size, bool) and size > 0 else 0.0
        if kind == "offer":
            offered[client] = known
        elif kind in ("fetch", "upload"):
            began["down" if kind == "fetch" else "up", client] = moment
        elif kind == "work" and (start := began.pop(("down", client), None)) is not None and client in offered:
            yield Transfer("down", start, moment, offered.pop(client))
        elif kind in ("receive", "reject") and (start := began.pop(("up", client), None)) is not None:
            yield Transfer("up", start, moment, known)


def _shares(one: Transfer, start: float, step: int, num_steps: int) -> Iterator[tuple[int, float]]:
    """Yield the steps that a transfer spans, and its share in each; the part before the first step is left out."""
    length = one.end_s - one.start_s
    first, last = int((one.start_s - start) // step), int((one.end_s - start) // step)
    for at in range(max(0, first), min(last, num_steps - 1) + 1):
        inside = min(one.end_s, start + (at + 1) * step) - max(one.start_s, start + at * step)
        yield at, inside / length if length > 0 else 1.0


def _moment(event: dict[str, Any]) -> float | None:
    try:
        found = datetime.fromisoformat(str(event.get("time"))).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None
    return found if found < _LATEST_S else None


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
