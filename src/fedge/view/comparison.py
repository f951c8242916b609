"""Selected runs side by side: groups with their results, differences of settings, pairs, correlations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from fedge.core.errors import ConfigError
from fedge.core.fields import AXES, describe
from fedge.report.analysis_tables import comparable, importance_table, paired_table, relation_tables
from fedge.report.correlation import correlate, levels
from fedge.report.groups import RunGroup, RunView, describe_in, describe_timed, group_begun, own_fields, varied
from fedge.report.importance import measure_importance
from fedge.report.pairs import Baseline, find_baseline, pair_all
from fedge.report.run_results import outcome
from fedge.report.settings_table import WhichSettings, differing_settings, equal_settings, settings_table
from fedge.report.statistics import to_target
from fedge.report.tables import RESULTS, TableCells
from fedge.runs import Run
from fedge.view.row_writer import estimate_cell
from fedge.view.run_entry import RunEntry

_PARETO = ("bytes_to_target", "rounds_to_target")
_COSTS = ("bytes", "flops", "sim_seconds", "energy_j")
_SHOWN_AXES = ("round", "bytes_up", "bytes_down", "flops", "sim_seconds", "energy_j")


class ComparisonOptions(NamedTuple):
    """The options of a comparison, read from the parameters of a URL."""

    x: str = "round"
    y: str | None = None
    outcome: str | None = None
    baseline: str | None = None
    px: str | None = None
    py: str | None = None
    settings: WhichSettings = "differ"

    @staticmethod
    def parse(query: Any) -> ComparisonOptions:
        return ComparisonOptions(
            query.get("x") or "round",
            query.get("y") or None,
            query.get("outcome") or None,
            query.get("baseline") or None,
            query.get("px") or None,
            query.get("py") or None,
            "all" if query.get("settings") == "all" else "differ",
        )


def compare_runs(
    loaded: Sequence[tuple[RunEntry, Run]], left_out: Sequence[tuple[RunEntry, str]], wanted: ComparisonOptions
) -> dict[str, Any]:
    """Return the answer of `/api/compare` for readable runs, with the reasons for the others. Raises ConfigError."""
    keys = {run.path: entry.key for entry, run in loaded}
    runs = [run for _, run in loaded]
    found: dict[str, Any] = {
        "selected": len(loaded) + len(left_out),
        "compared": len(runs),
        "left_out": [{"key": entry.key, "path": entry.path, "reason": reason} for entry, reason in left_out],
        "groups": [],
    }
    if not runs:
        return found
    groups = group_begun(runs)
    grouped = {run.path for group in groups for run in group.runs}
    found["left_out"] += [
        {
            "key": entry.key,
            "path": entry.path,
            "reason": "repeats a seed of another run" if run.rounds else "no round yet",
        }
        for entry, run in loaded
        if run.path not in grouped
    ]
    metrics = _metrics(runs)
    y = wanted.y or next((entry.metric for entry, _ in loaded if entry.metric in metrics), None) or "accuracy"
    results, costs = _having(groups, (*RESULTS, *own_fields(runs), y)), _having(groups, _COSTS)
    judged = wanted.outcome or ("rounds_to_target" if "rounds_to_target" in results else y)
    samples = [run for group in groups for run in group.runs]
    baseline = wanted.baseline or _first_having(groups, judged).label
    found |= {
        "x": wanted.x,
        "y": y,
        "outcome": judged,
        "outcome_title": describe_timed(groups, judged).title,
        "px": wanted.px or next((name for name in (*_PARETO, *_COSTS) if name in (*results, *costs)), judged),
        "py": wanted.py or (y if y in results else judged),
        "axes": [_titled(name, groups) for name in _axes(runs)],
        "metrics": [_titled(name, groups) for name in metrics],
        "outcomes": [_titled(name, groups) for name in results],
        "rivals": [
            _titled(name, groups) for name in (*results, *costs) if describe_in(groups, name).better != "neither"
        ],
        "groups": [_describe_group(group, groups, results, keys) for group in groups],
        "clocks": sorted({str(group.runs[0].effective.get("clock")) for group in groups}),
        "differences": [one._asdict() for one in differing_settings(groups)],
        "same": [{"setting": one.setting, "value": one.values[0]} for one in equal_settings(groups)],
        "settings": wanted.settings,
        "baseline": baseline,
        "pairs": _pairs(groups, judged, against := find_baseline(groups, baseline)),
        "baseline_title": against.title,
        "importance": (importance := _importance(samples, judged)),
        "correlations": [asdict(each) for each in correlate(samples, [judged])],
        "levels": [_level(each) for each in levels(samples, [judged])],
        "charts": _charts(groups, runs, results),
        "tables": _tables(groups, judged, baseline, wanted.settings, len(importance["settings"]) != 1),
    }
    return found


def _tables(
    groups: Sequence[RunGroup], judged: str, baseline: str, which: WhichSettings, ranked: bool
) -> dict[str, Any]:
    """Return the tables of the page as text, as `fedge show` prints them, or the reason why a table is missing.

    Without `ranked`, a single setting varies, and there is no importance to rank.
    """
    runs = [run for group in groups for run in group.runs]
    found: dict[str, Sequence[TableCells | str]] = {
        "settings": [settings_table(groups, which)],
        "pairs": [paired_table(groups, judged, baseline)] if len(groups) > 1 else [],
        "importance": [importance_table(runs, judged)] if len(groups) > 1 and ranked else [],
        "correlations": list(relation_tables(runs, [judged], own_fields(runs))),
    }
    return {
        name: [
            {"reason": one} if isinstance(one, str) else one._asdict() | {"best": sorted(one.best)} for one in tables
        ]
        for name, tables in found.items()
    }


def _describe_group(
    group: RunGroup, groups: Sequence[RunGroup], results: Sequence[str], keys: Mapping[Any, str]
) -> dict[str, Any]:
    finished = [run for run in group.runs if run.summary is not None]
    return {
        "label": group.label,
        "keys": [keys[run.path] for run in group.runs],
        "finished": len(finished),
        "count": len(group.runs),
        "clock": group.runs[0].effective.get("clock"),
        "target": str(group.target) if group.target else None,
        "results": {
            name: estimate_cell(
                to_target([outcome(run, name) for run in group.runs], group.mixed), describe_in(groups, name)
            )
            for name in results
        },
    }


def _having(groups: Sequence[RunGroup], names: Iterable[str]) -> list[str]:
    """Return the results that any group has, including the rounds to a target that no group has reached."""
    runs = [run for group in groups for run in group.runs if run.summary is not None]
    has_target = any(group.target for group in groups)
    return [
        name
        for name in dict.fromkeys(names)
        if any(outcome(run, name) is not None for run in runs) or (name == "rounds_to_target" and has_target)
    ]


def _results_table(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for group in found["groups"]:
        row = {"label": group["label"], "finished": group["finished"], "count": group["count"]}
        for name, cell in group["results"].items():
            row |= {name: cell["mean"], f"{name} low": cell.get("low"), f"{name} high": cell.get("high")}
            row |= {f"{name} n": cell["n"], f"{name} of": cell["of"]}
        rows.append(row)
    return rows


def _settings_table(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    labels = [group["label"] for group in found["groups"]]
    rows = [{"setting": one["setting"]} | dict(zip(labels, one["values"], strict=True)) for one in found["differences"]]
    return rows + [{"setting": one["setting"]} | dict.fromkeys(labels, one["value"]) for one in found["same"]]


TABLES: Mapping[str, Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]] = {
    "results": _results_table,
    "settings": _settings_table,
    "pairs": lambda found: found["pairs"],
    "importance": lambda found: found["importance"]["settings"],
    "correlations": lambda found: [*found["correlations"], *found["levels"]],
}
"""The tables of a comparison that can be exported, each built from the result of `compare_runs`."""


def _first_having(groups: Sequence[RunGroup], judged: str) -> RunGroup:
    """Return the first group that has a result; without one, the first group."""
    return next((group for group in groups if any(outcome(run, judged) is not None for run in group.runs)), groups[0])


def _pairs(groups: Sequence[RunGroup], judged: str, against: Baseline) -> list[dict[str, Any]]:
    """Return each comparable group that shares a seed with its baseline against that baseline, seed by seed."""
    sizes = {group.label: len(group.runs) for group in groups}
    found = []
    for each in pair_all(comparable(groups, judged), judged, against):
        one = asdict(each)
        difference = one.pop("difference")
        ends = {end: difference and difference[end] for end in ("low", "high")}
        found.append(one | {"difference": difference and difference["mean"], **ends, "of": sizes[each.first]})
    return found


def _importance(runs: Sequence[RunView], judged: str) -> dict[str, Any]:
    """Return the share of the result's variance that each setting explains, or why it is unknown."""
    try:
        return asdict(measure_importance(runs, judged)) | {"problem": None}
    except ConfigError as error:
        return {"settings": [], "problem": str(error)}


def _level(each: Any) -> dict[str, Any]:
    mean = each.result.estimate and each.result.estimate.mean
    return {
        "setting": each.setting,
        "value": each.value,
        "mean": mean,
        "n": each.result.reached,
        "of": each.result.count,
    }


def _axes(runs: Sequence[Run]) -> list[str]:
    recorded = {name for run in runs for record in run.rounds[:1] for name in record}
    return [name for name in dict.fromkeys((*_SHOWN_AXES, *AXES)) if name in recorded and name in AXES]


def _metrics(runs: Sequence[Run]) -> list[str]:
    own = own_fields(runs)
    names = dict.fromkeys(name for run in runs for record in run.rounds for name in record)
    return [name for name in names if describe(name, own).role == "metric"]


def _titled(name: str, groups: Sequence[RunGroup]) -> dict[str, str]:
    return {"name": name, "title": describe_timed(groups, name).title}


def _charts(groups: Sequence[RunGroup], runs: Sequence[Run], results: Sequence[str]) -> list[str]:
    found = ["curves"]
    if any(name.endswith("_to_target") for name in results):
        found.append("bars")
    if len(groups) > 1:
        found += ["pareto", "parallel", "pairs"] if varied([group.runs[0] for group in groups]) else ["pareto"]
    if len(varied([group.runs[0] for group in groups])) > 1:
        found.append("heatmap")
    if any("user_accuracy" in client for run in runs for client in run.clients[:1]):
        found.append("users")
    if any(run.edge for run in runs):
        found.append("latency")
    return found
