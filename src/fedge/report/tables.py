"""Experiments compared in a table: their results, and the costs to reach the target."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import floor, isfinite, log10
from typing import Any, NamedTuple

from fedge.core.fields import Field, OwnFields, Unit, describe, fitting, measured_on
from fedge.report.edge_rates import depends_on_edge, edge_rates
from fedge.report.groups import RunGroup, Target, own_fields
from fedge.report.mean_curve import rounds_of_mean
from fedge.report.run_results import outcome
from fedge.report.statistics import LEVEL, MIN_SEEDS, Estimate, to_target

_MOST_WRITTEN = 1e30  # a larger number is written with an exponent


@dataclass(frozen=True)
class Row:
    """One experiment over its finished seeds, in the units of the records. None: measured by no seed.

    Costs to the target are those of the seeds that reached it; `rounds_to_target_of_mean` is the round in which the
    mean over seeds did. `metrics` are those of `evaluate.metrics`, on the test set, and `own` declares them.
    """

    label: str
    seeds: int
    unfinished: int
    target: Target | None
    reached: int
    accuracy: Estimate | None
    user_accuracy: Estimate | None
    user_accuracy_clean: Estimate | None
    rounds_to_target: Estimate | None
    rounds_to_target_of_mean: int | None
    bytes_to_target: Estimate | None
    flops_to_target: Estimate | None
    sim_seconds_to_target: Estimate | None
    energy_j_to_target: Estimate | None
    edge_rates: str | None = None
    metrics: Mapping[str, Estimate | None] = field(default_factory=dict)
    own: OwnFields = field(default_factory=dict)

    def result(self, name: str) -> Estimate | None:
        """Return the result of this name."""
        found: Estimate | None = getattr(self, name) if name in RESULTS else self.metrics.get(name)
        return found


def compare(groups: Sequence[RunGroup]) -> list[Row]:
    """Return a row per group. Unfinished runs are counted, but are not part of the results."""
    return [_row(group) for group in groups]


def records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows as plain data."""
    found = [asdict(replace(row, own={}, target=row.target and replace(row.target, own={}))) for row in rows]
    for record in found:
        for declaring in (record, record["target"] or {}):
            declaring.pop("own", None)
    return found


def best_of(estimates: Sequence[Estimate | None], declared: Field) -> list[int]:
    """Return the indices of the best means; none if neither direction is better, or if there are fewer than two."""
    ranks = {i: declared.rank(found.mean) for i, found in enumerate(estimates) if found}
    if declared.better == "neither" or len(set(ranks.values())) < 2:
        return []
    return [i for i, rank in ranks.items() if rank == min(ranks.values())]


def grid(rows: Sequence[Row]) -> TableCells:
    """Return the rows as text, with the best value of each column; columns without any value are left out."""
    targets = list(dict.fromkeys(row.target for row in rows if row.target))
    goal = targets[0].written if len(targets) == 1 else "target"
    head, best = ["name", "seeds"], set()
    cells = [[_name(row), str(row.seeds)] for row in rows]
    for name, header in _headings(rows).items():
        estimates = [row.result(name) for row in rows]
        to_target_rounds = name == "rounds_to_target" and bool(targets)
        if not any(estimates) and not to_target_rounds:
            continue
        declared = describe(name, next((row.own for row in rows if name in row.own), {}))
        unit = fitting(declared.units, max((estimate.mean for estimate in estimates if estimate), default=0.0))
        best |= {(i, len(head)) for i in best_of(estimates, declared)}
        head.append(header.format(unit=unit.name, goal=goal))
        for row, line, estimate in zip(rows, cells, estimates, strict=True):
            written = write(estimate, unit) if estimate else "–"
            line.append(_with_details(written, row) if to_target_rounds else written)
    return TableCells("Results", head, cells, _caption(rows, targets), best)


def write(estimate: Estimate, unit: Unit) -> str:
    """Return `93.1±1.2`, with the digits that the interval supports, and at least three or four digits of the mean.

    For two seeds: `93.1` and, in a second line, their range `(92.0–94.2)`.
    """
    mean = estimate.mean / unit.size
    finest = max(0, 3 - _exponent(mean))
    if estimate.half:
        half = estimate.half / unit.size
        place = min(finest, max(_last_place(half), min(2, 2 - _exponent(mean))))
        return f"{_rounded(mean, place)}±{_rounded(half, place)}"
    place = 0 if mean.is_integer() else finest
    if estimate.band == "range" and estimate.low is not None and estimate.high is not None:
        low, high = estimate.low / unit.size, estimate.high / unit.size
        place = min(finest, max(_last_place((high - low) / 2), 2 - _exponent(mean), 0)) if high > low else place
        ends = f"\n({_rounded(low, place)}–{_rounded(high, place)})" if high > low else ""
        return f"{_rounded(mean, place)}{ends}"
    text = _rounded(mean, place)
    return f"{text}±0" if estimate.half == 0 else text


class TableCells(NamedTuple):
    """A table as text: the first column names the row, and notes explain the numbers.

    `best` has the best cells of each column, as (row, column).
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    best: Collection[tuple[int, int]] = ()


RESULTS = {
    "accuracy": "accuracy\n({unit})",
    "user_accuracy": "user\nacc. ({unit})",
    "user_accuracy_clean": "clean\nuser\nacc. ({unit})",
    "rounds_to_target": "rounds\nto {goal}",
    "bytes_to_target": "{unit} up\n+ down\nto {goal}",
    "flops_to_target": "{unit}\nto {goal}",
    "sim_seconds_to_target": "edge {unit}\nto {goal}",
    "energy_j_to_target": "{unit}\nto {goal}",
}
"""The results that a table compares, with headings so short that all of them fit 80 columns."""


def _headings(rows: Sequence[Row]) -> dict[str, str]:
    """Return the headings of all results; the runs' own metrics come before the costs to target."""
    own = {name: describe(name, row.own) for row in rows for name in row.metrics}
    titles = {name: each.title + ("\n({unit})" if each.units[0].name else "") for name, each in own.items()}
    names = list(RESULTS)
    first = names.index("rounds_to_target")
    return {name: (RESULTS | titles)[name] for name in (*names[:first], *titles, *names[first:])}


def _row(group: RunGroup) -> Row:
    finished = [run for run in group.runs if run.summary is not None]
    own = own_fields(group.runs)
    metrics = [name for name in own if measured_on(name) == "test set"]
    found = {name: to_target([outcome(run, name) for run in finished], group.mixed) for name in (*RESULTS, *metrics)}
    return Row(
        label=group.label,
        seeds=len(finished),
        unfinished=len(group.runs) - len(finished),
        target=group.target,
        reached=found["rounds_to_target"].reached,
        rounds_to_target_of_mean=rounds_of_mean(group),
        edge_rates=edge_rates(group.runs[0].effective),
        **{name: found[name].estimate for name in RESULTS},
        metrics={name: found[name].estimate for name in metrics},
        own=own,
    )


def _name(row: Row) -> str:
    return f"{row.label}\n{row.unfinished} unfinished" if row.unfinished else row.label


def _with_details(written: str, row: Row) -> str:
    """Return the rounds to target and, below, those of the mean curve and the number of seeds that reached it."""
    if row.target is not None and row.reached < row.seeds:
        written = f"{written}\n{row.reached}/{row.seeds} reached" if row.reached else "not reached"
    if row.target is None or row.seeds < 2:
        return written
    of_mean = "–" if row.rounds_to_target_of_mean is None else f"{row.rounds_to_target_of_mean:,}"
    return f"{written}\nmean: {of_mean}"


def _caption(rows: Sequence[Row], targets: Sequence[Target]) -> list[str]:
    """Return the explanations of numbers that apply to these rows."""
    if len(targets) == 1:
        notes = [f"target: {targets[0]}"]
    else:
        notes = [f"target of {row.label}: {row.target}" for row in rows if row.target]
    if any(0 < row.reached < row.seeds for row in rows):
        notes.append("costs to target: of the seeds that reached it")
    if targets and any(row.seeds > 1 for row in rows):
        notes.append("rounds to target: mean over seeds of the first that reached it")
        notes.append("mean: the first round in which the mean over seeds reached it")
    estimates = [found for row in rows for name in (*RESULTS, *row.metrics) if (found := row.result(name))]
    if any(found.half is not None for found in estimates):
        notes.append(f"±: half the {100 * LEVEL:g}% confidence interval of the mean over seeds")
    if any(found.band == "range" for found in estimates):
        notes.append(f"(least–greatest): range of fewer than {MIN_SEEDS} seeds, too few for an interval")
    return notes + _edge_notes(rows)


def _edge_notes(rows: Sequence[Row]) -> list[str]:
    """Return the assumptions behind edge seconds and joules; a single note if all rows that have any agree."""
    names = [name for name in RESULTS if depends_on_edge(name)]
    shown = [row for row in rows if row.edge_rates and any(getattr(row, name) for name in names)]
    if len({row.edge_rates for row in shown}) == 1:
        return [f"edge time, energy: {shown[0].edge_rates}"]
    return [f"edge time, energy of {row.label}: {row.edge_rates}" for row in shown]


def _last_place(half: float) -> int:
    """Return the decimal place of the first digit of an uncertainty, or of the second if the first is a 1."""
    exponent = _exponent(half)
    return (1 if half < 2 * 10.0**exponent else 0) - exponent


def num_decimals(largest: float) -> int:
    """Return the number of decimals that show three digits of the largest of some numbers."""
    return max(0, 2 - _exponent(largest)) if largest and isfinite(largest) else 0


def _exponent(value: float) -> int:
    return floor(log10(abs(value))) if value and isfinite(value) else 0


def _rounded(value: float, place: int) -> str:
    if abs(value) >= _MOST_WRITTEN:
        return f"{value:.3g}"
    return f"{round(value, place):,.{max(place, 0)}f}"
