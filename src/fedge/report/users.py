"""How evenly a model serves its users: the distribution of user accuracy over clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from fedge.core.errors import ConfigError
from fedge.core.fields import PERCENT, describe, titled
from fedge.report.charts import COLOURS, DASHES
from fedge.report.groups import RunGroup, RunView, has
from fedge.report.style import FAINT, SIZE, legend_style, need

if TYPE_CHECKING:
    import altair

FIELD = "user_accuracy"
MOST_STEPS = 400
"""Of a curve: more than the paper shows, however many clients there are."""


def users(groups: Sequence[RunGroup]) -> altair.LayerChart:
    """Which share of the clients has at most some accuracy, one curve a group, over the clients of all its runs."""
    alt = need("altair")
    found = {group.label: [values for run in group.runs if (values := user_accuracies(run))] for group in groups}
    measured = {label: runs for label, runs in found.items() if runs}
    if not measured:
        raise ConfigError(
            f"no run has the {FIELD} of its clients, which a run with evaluate.user_accuracy = true writes when it is "
            "complete; finish one, or draw --kind curves"
        )
    labels = list(measured)
    domain = {"domain": labels}
    (unit,) = PERCENT
    across = alt.X("x:Q", title=titled(describe(FIELD).title, unit), scale=alt.Scale(zero=False, nice=False, padding=4))
    share = alt.Y("share:Q", title=titled("share of clients", unit), scale=alt.Scale(domain=[0, 100]))
    looks = {
        "stroke": alt.Stroke("label:N", scale=alt.Scale(**domain, range=[*islice(cycle(COLOURS), len(labels))])),
        "strokeDash": alt.StrokeDash("label:N", scale=alt.Scale(**domain, range=[*islice(cycle(DASHES), len(labels))])),
    }
    rows = [
        {"label": label, "x": accuracy / unit.size, "share": part / unit.size}
        for label, runs in measured.items()
        for accuracy, part in cumulate([value for values in runs for value in values])
    ]
    curves = alt.Chart(alt.Data(values=rows)).mark_line(interpolate="step-after").encode(across, share, **looks)
    chart: altair.LayerChart = alt.layer(
        *_median(alt),
        curves,
        title=_said(list(measured.values()), len(groups) - len(measured)),
        config=legend_style(labels, SIZE["width"]),
        **SIZE,
    )
    return chart


def user_accuracies(run: RunView) -> list[float]:
    """Of each client whose accuracy was measured in the last evaluation."""
    return [float(client[FIELD]) for client in run.clients if has(client, FIELD)]


def cumulate(values: Sequence[float]) -> Iterator[tuple[float, float]]:
    """The corners of the cumulative distribution: a value, and the share of all that is not above it."""
    ordered = sorted(values)
    num_steps = min(len(ordered), MOST_STEPS)
    ranks = [round(len(ordered) * step / num_steps) for step in range(1, num_steps + 1)]
    yield ordered[0], 0.0
    yield from {ordered[rank - 1]: rank / len(ordered) for rank in ranks}.items()  # of equals the last one counts


def _median(alt: Any) -> list[Any]:
    """A thin rule on which the medians are read, with its label beyond the right end."""
    half = alt.Chart(alt.Data(values=[{"share": 50}])).encode(alt.Y("share:Q"))
    label = half.mark_text(text="median", align="left", baseline="middle", dx=5, fontSize=9, color=FAINT)
    return [
        half.mark_rule(strokeDash=[3, 3], strokeWidth=0.75, color=FAINT).encode(x=alt.value(0), x2=alt.value("width")),
        label.encode(x=alt.value("width")),
    ]


def _said(groups: Sequence[Sequence[Sequence[float]]], num_lost: int) -> str:
    """What a share is of, and whose accuracies stand behind a curve."""
    num_clients = _counted([len(values) for runs in groups for values in runs], "client")
    num_runs = [len(runs) for runs in groups]
    behind = f"{num_clients} in each of {_counted(num_runs, 'run')}" if max(num_runs) > 1 else num_clients
    lost = f"; {num_lost} not shown: not measured" if num_lost else ""
    return f"share with at most that accuracy; {behind}{lost}"


def _counted(counts: Sequence[int], what: str) -> str:
    low, high = min(counts), max(counts)
    span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{span} {what}" if high == 1 else f"{span} {what}s"
