"""A stacked chart of the parts of one run's costs, round by round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedge.core.errors import ConfigError
from fedge.core.fields import Unit, describe, fitting
from fedge.report.chart_options import INTEGERS, PLAIN, ChartOptions
from fedge.report.groups import RunView, has
from fedge.report.style import AREAS, COLOURS, inline, need
from fedge.report.timeline import PHASES

if TYPE_CHECKING:
    import altair

PARTS: dict[str, dict[str, str]] = {
    "bytes": {"bytes_down": "down", "bytes_up": "up", "bytes_backhaul": "backhaul"},
    "sim_seconds": {"sim_down_s": "download", "sim_compute_s": "compute", "sim_wait_s": "wait", "sim_up_s": "upload"},
    "messages": {"messages": "messages"},
    "local_steps": {"local_steps": "local steps"},
    "flops": {"flops": "compute"},
    "energy_j": {"energy_j": "energy"},
}
"""The costs that the chart can show, each with the fields that it consists of and their names in the legend."""
_COLOURS = {"down": PHASES["download"], "up": PHASES["upload"], "backhaul": COLOURS[4], **PHASES}
MAX_BARS = 120


def breakdown(run: RunView, y: str = "bytes", options: ChartOptions = PLAIN) -> altair.Chart:
    """Return the cost of each round, stacked by part; for long runs, means over several rounds, as a note states."""
    alt = need("altair")
    if y not in PARTS:
        raise ConfigError(f"y: expected one of {', '.join(PARTS)}, got {y!r}")
    names = {field: name for field, name in PARTS[y].items() if any(has(record, field) for record in run.rounds)}
    if not names:
        raise ConfigError(f"no round has {' or '.join(PARTS[y])}; choose another cost")
    paid = {field: name for field, name in names.items() if any(record.get(field) for record in run.rounds)}
    names = paid or names  # a part that costs nothing would only clutter the legend
    step = -(-len(run.rounds) // MAX_BARS)
    bars = _bars(run.rounds, names, step)
    largest = max(row["above"] for row in bars)
    declared = describe(next(iter(names)))
    unit = fitting(declared.units, largest)
    for row in bars:
        for name in ("below", "above", "value"):
            row[name] /= unit.size
    title = _title(y, unit, str(run.effective.get("clock") or ""))
    legend = {} if len(names) > 1 else {"legend": None}
    colours = [_COLOURS.get(name, COLOURS[0]) for name in names.values()]
    base = alt.Chart(
        inline(alt, bars),
        title=options.caption(f"mean over {step} rounds a bar, {len(run.rounds):,} rounds in all" if step > 1 else ""),
        config=options.style(list(names.values()), **AREAS),
        **options.size,
    )
    chart: altair.Chart = base.mark_rect(stroke=None).encode(
        alt.X("left:Q", title="round", scale=alt.Scale(nice=False, zero=False), axis=alt.Axis(**INTEGERS)),
        alt.X2("right:Q"),
        alt.Y("below:Q", title=options.words.axis_text("y", title), scale=alt.Scale(zero=True, nice=True)),
        alt.Y2("above:Q"),
        alt.Color("part:N", scale=alt.Scale(domain=list(names.values()), range=colours), **legend),
        tooltip=[alt.Tooltip("first:Q", title="round"), alt.Tooltip("part:N"), alt.Tooltip("value:Q", format=".4g")],
    )
    return chart


def _bars(records: Sequence[Any], names: dict[str, str], step: int) -> list[dict[str, Any]]:
    """Return the mean of each part over `step` rounds at a time; each bar spans its rounds."""
    found = []
    margin = 0.4 if len(records) < MAX_BARS / 2 else 0.5  # no gaps between many bars
    for start in range(0, len(records), step):
        some = records[start : start + step]
        first, last = some[0]["round"], some[-1]["round"]
        ends = {"first": first, "last": last, "left": first - margin, "right": last + margin}
        below = 0.0
        for field, name in names.items():
            value = sum(record.get(field) or 0 for record in some) / len(some)
            found.append({**ends, "part": name, "value": value, "below": below, "above": below + value})
            below += value
    return found


def _title(y: str, unit: Unit, clock: str) -> str:
    said = f"{clock} " if y == "sim_seconds" and clock else ""
    what = "traffic" if y == "bytes" else describe(y).title
    return f"{what} of a round ({said}{unit.name})" if unit.name else f"{what} of a round"
