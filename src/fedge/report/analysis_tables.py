"""Paired comparison, parameter importance and correlation as tables, for reports and the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedge.core.errors import ConfigError
from fedge.core.fields import OwnFields, Unit, describe, fitting, is_to_target, titled
from fedge.report.correlation import correlate, levels
from fedge.report.groups import RunGroup, RunView, describe_in, own_fields
from fedge.report.importance import Importance, measure_importance
from fedge.report.labels import DisplayNames
from fedge.report.pairs import Baseline, Pairing, difference_title, find_baseline, pair_all
from fedge.report.run_results import outcome
from fedge.report.statistics import LEVEL, Reached
from fedge.report.tables import TableCells, best_of, write

_WORDS = DisplayNames()


def paired_table(groups: Sequence[RunGroup], name: str, baseline: str | None = None) -> TableCells | str:
    """Return each group's difference from the baseline in one result, or why there is none.

    `baseline` is as in `find_baseline`; the default is the first group that can be compared.
    """
    quantity = describe_in(groups, name)
    alike = comparable(groups, name)
    if not alike:
        return f"{capital(quantity.title)}: no group of runs has it."
    against = find_baseline(groups, baseline) if baseline else find_baseline(alike)
    found = pair_all(alike, name, against)
    if not found:
        return f"{capital(quantity.title)}: no group of runs shares a seed with {against.title}."
    unit = fitting(quantity.units, max(abs(one.difference.mean) if one.difference else 0.0 for one in found))
    sizes = {group.label: len(group.runs) for group in alike}
    rows = [
        [
            pairing.first,
            f"{pairing.pairs} of {sizes[pairing.first]}",
            write(pairing.difference, unit).replace("-", "−") if pairing.difference else "–",
            f"{pairing.wins}:{pairing.losses}",
            pairing.verdict,
        ]
        for pairing in found
    ]
    head = ["group", "pairs", difference_title(quantity, unit), "wins", "verdict"]
    title = f"{capital(quantity.title)} against {against.title}"
    return TableCells(title, head, rows, [*_pairing_notes(found), *_left_out(groups, found, against, name)])


def comparable(groups: Sequence[RunGroup], name: str) -> list[RunGroup]:
    """Return the groups that have a result; for a cost to target, those with the first target."""
    if is_to_target(name):
        target = next((group.target for group in groups if group.target), None)
        return [group for group in groups if target and group.target == target]
    return [group for group in groups if any(outcome(run, name) is not None for run in group.runs)]


def importance_table(runs: Sequence[RunView], name: str) -> TableCells | str:
    """Return the share of a result's variance that each varied setting explains, or why it cannot be computed."""
    title = describe(name, own_fields(runs)).title
    try:
        found = measure_importance(runs, name)
    except ConfigError as error:
        return f"{capital(str(error))}."
    rows = [
        [_WORDS.setting(one.setting), _percent(one.share), _levels(one.levels, one.binned)] for one in found.settings
    ]
    rest = "interactions" if found.seeds is not None else "interactions and seeds"
    rows.append([rest, _percent(found.interactions), "–"])
    if found.seeds is not None:
        rows.append(["seeds", _percent(found.seeds), "–"])
    if abs(found.shared) >= 0.005:
        rows.append(["not attributable", _percent(found.shared), "–"])
    head = ["setting", "variance explained (%)", "values"]
    return TableCells(f"Parameter importance for {title}", head, rows, _importance_notes(found, len(runs)))


def relation_tables(runs: Sequence[RunView], outcomes: Sequence[str], own: OwnFields) -> Iterator[TableCells]:
    """Return the correlations of numeric settings, and the mean result for each value of the others."""
    correlations = correlate(runs, outcomes) if runs else []
    if correlations:
        rows = [
            [
                _WORDS.setting(setting),
                *(_coefficient(one.coefficient, one.count) for one in correlations if one.setting == setting),
            ]
            for setting in dict.fromkeys(one.setting for one in correlations)
        ]
        notes = [
            f"Pearson's coefficient, with the number of runs, of {len(runs)}; costs to target: of those that reached it"
        ]
        yield TableCells("Correlation", ["setting", *(describe(name, own).title for name in outcomes)], rows, notes)
    found = levels(runs, outcomes) if runs else []
    declared = {name: describe(name, own) for name in outcomes}
    means = {name: [one.result.estimate for one in found if one.outcome == name] for name in outcomes}
    units = {
        name: fitting(declared[name].units, max((one.mean for one in means[name] if one), default=0.0))
        for name in outcomes
    }
    for setting in dict.fromkeys(one.setting for one in found):
        alike = [one for one in found if one.setting == setting]
        values = list(dict.fromkeys(one.value for one in alike))
        columns = {name: [one.result for one in alike if one.outcome == name] for name in outcomes}
        counts = [str(max(results[i].count for results in columns.values())) for i in range(len(values))]
        rows = [
            [text, counts[i]]
            + [
                _mean(results[i], units[name]) + _reached(name, results[i].reached, results[i].count)
                for name, results in columns.items()
            ]
            for i, text in enumerate(_WORDS.values(setting, [None if value == "None" else value for value in values]))
        ]
        best = {
            (i, 2 + column)
            for column, (name, results) in enumerate(columns.items())
            for i in best_of([one.estimate for one in results], declared[name])
        }
        title = _WORDS.setting(setting)
        head = [title, "runs", *(titled(declared[name].title, units[name]) for name in outcomes)]
        notes = ["mean over all runs with that value, whatever their other settings; ± only where seeds alone differ"]
        yield TableCells(f"By {title}", head, rows, notes, best)


def _pairing_notes(found: Sequence[Pairing]) -> list[str]:
    notes = [f"better, worse: the {LEVEL:.0%} confidence interval of the mean difference over seeds excludes 0"]
    if any(pairing.by == "wins" for pairing in found):
        notes.append(
            "where a seed did not reach the target, the difference is over the other pairs, and the verdict is that of "
            f"a sign test over all pairs (p <= {1 - LEVEL:.2g})"
        )
    if len(found) > 1:
        notes.append(f"{len(found)} comparisons: some may differ by chance, as no correction is made for their number")
    return notes


def _left_out(groups: Sequence[RunGroup], found: Sequence[Pairing], against: Baseline, name: str) -> list[str]:
    """Return a note on the groups that are neither compared nor part of the baseline."""
    seen = {one.first for one in found} | {group.label for group in against.groups}
    rest = [group for group in groups if group.label not in seen]
    can = {group.label for group in comparable(groups, name)}
    why = "another target or none" if is_to_target(name) else f"no {describe_in(groups, name).title}"
    lacking = [group.label for group in rest if group.label not in can]
    unpaired = [group.label for group in rest if group.label in can]
    notes = [f"left out, as they have {why}: {'; '.join(lacking)}"] if lacking else []
    return notes + (
        [f"left out, as no baseline has their settings and seeds: {'; '.join(unpaired)}"] if unpaired else []
    )


def _importance_notes(found: Importance, num_runs: int) -> list[str]:
    over = f"{found.runs} of {num_runs} runs"
    notes = [f"share of the variance over {over} that a setting explains beyond the others (ANOVA)"]
    if any(one.binned for one in found.settings):
        notes.append("settings with many values are binned into equally large groups of runs")
    if found.rough:
        notes.append("few runs for the number of values: the shares are rough, and chance makes them larger than 0")
    if found.follows:
        pairs = [f"{_WORDS.setting(key)} ({_WORDS.setting(other)})" for key, other in found.follows.items()]
        notes.append(f"settings that another one determines have no row: {', '.join(pairs)}")
    if abs(found.shared) >= 0.005:
        notes.append("not attributable: settings did not vary independently of each other")
    return notes


def _mean(result: Reached, unit: Unit) -> str:
    return write(result.estimate, unit) if result.estimate else "–"


def _levels(levels: int, binned: bool) -> str:
    return f"{levels} bins" if binned else str(levels)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".replace("-", "−")


def _coefficient(value: float | None, count: int) -> str:
    return f"– ({count})" if value is None else f"{value:+.2f} ({count})".replace("-", "−")


def _reached(name: str, reached: int, count: int) -> str:
    return f" ({reached}/{count} reached)" if is_to_target(name) and 0 < reached < count else ""


def capital(text: str) -> str:
    """Return the text with its first letter as a capital."""
    return text[:1].upper() + text[1:]
