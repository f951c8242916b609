"""Fairness: the distribution of user accuracy over clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fedge.core.errors import ConfigError
from fedge.core.fields import PERCENT, describe
from fedge.report.chart_options import PLAIN, ChartOptions, keep_best
from fedge.report.groups import RunGroup, RunView, has
from fedge.report.statistics import average
from fedge.report.style import COLOURS, DASHES, FAINT, inline, line_looks, need

if TYPE_CHECKING:
    import altair

FIELD = "user_accuracy"
MOST_STEPS = 400
"""Maximum number of steps of a curve; print cannot show more."""
MAX_LINES = len(COLOURS) * len(DASHES)
"""Further curves would repeat a colour and dash."""


def users(groups: Sequence[RunGroup], options: ChartOptions = PLAIN) -> altair.LayerChart:
    """Return the cumulative distribution of accuracy over clients: a curve per group, over all its runs."""
    alt = need("altair")
    found = [(group.label, [values for run in group.runs if (values := user_accuracies(run))]) for group in groups]
    measured = [((label, runs), -average([average(values) for values in runs])) for label, runs in found if runs]
    if not measured:
        raise ConfigError(
            f"no run has the {FIELD} of its clients, which a run with evaluate.user_accuracy = true writes when it is "
            "complete; finish one, or draw --kind curves"
        )
    declared, (unit,) = describe(FIELD), PERCENT
    kept, left_out = keep_best(measured, min(options.top, MAX_LINES), f"mean {declared.title}")
    shown = dict(kept)
    rows = [
        {"label": label, "x": accuracy / unit.size, "share": part / unit.size}
        for label, runs in shown.items()
        for accuracy, part in cumulate([value for values in runs for value in values])
    ]
    title = options.words.axis("x", declared, unit)
    across = alt.X("x:Q", title=title, scale=alt.Scale(zero=False, nice=False, padding=4))
    y_title = options.words.group("share of clients (%)")
    share = alt.Y("share:Q", title=y_title, scale=alt.Scale(domain=[0, 100]))
    lines = alt.Chart(inline(alt, rows)).mark_line(interpolate="step-after")
    chart: altair.LayerChart = alt.layer(
        *_median(alt),
        lines.encode(across, share, **line_looks(alt, list(shown))),
        title=options.caption(*_notes(list(shown.values()), len(groups) - len(measured)), left_out),
        config=options.style(list(shown), "top-left"),
        **options.size,
    )
    return chart


def user_accuracies(run: RunView) -> list[float]:
    """Return the accuracies of the clients measured in the last evaluation."""
    return [float(client[FIELD]) for client in run.clients if has(client, FIELD)]


def cumulate(values: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Yield the steps of the cumulative distribution: a value, and the share of all values up to it."""
    ordered = sorted(values)
    num_steps = min(len(ordered), MOST_STEPS)
    ranks = [round(len(ordered) * step / num_steps) for step in range(1, num_steps + 1)]
    yield ordered[0], 0.0
    yield from {ordered[rank - 1]: rank / len(ordered) for rank in ranks}.items()  # of equal values, the last


def _median(alt: Any) -> list[Any]:
    """Return a thin rule at the median, with its label at the left end."""
    half = alt.Chart(inline(alt, [{"share": 50}])).encode(alt.Y("share:Q"))
    label = half.mark_text(text="median", align="left", baseline="bottom", dx=3, fontSize=9, color=FAINT)
    return [
        half.mark_rule(strokeDash=[3, 3], strokeWidth=0.75, color=FAINT).encode(x=alt.value(0), x2=alt.value("width")),
        label.encode(x=alt.value(0)),
    ]


def _notes(groups: Sequence[Sequence[Sequence[float]]], num_lost: int) -> list[str]:
    """Return notes on what the shares refer to, and on the number of clients of each curve."""
    num_clients = _counted([len(values) for runs in groups for values in runs], "client")
    num_runs = [len(runs) for runs in groups]
    behind = f"{num_clients} in each of {_counted(num_runs, 'run')}" if max(num_runs) > 1 else num_clients
    return ["share with at most that accuracy", behind, f"{num_lost} not shown: not measured" if num_lost else ""]


def _counted(counts: Sequence[int], what: str) -> str:
    low, high = min(counts), max(counts)
    span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{span} {what}" if high == 1 else f"{span} {what}s"
