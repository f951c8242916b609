"""Groups of runs that differ in the seed alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from fedge.core.advice import synonym
from fedge.core.effect import digest, omit, settings
from fedge.core.errors import ConfigError, nearest
from fedge.core.fields import Field, OwnFields, describe
from fedge.report.labels import DisplayNames, label_configurations, label_rows
from fedge.runs.data_names import DataNames


class RunView(Protocol):
    """The properties of a run that a report needs; `fedge.runs.read` provides them."""

    @property
    def path(self) -> Path: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def effective(self) -> Mapping[str, Any]: ...
    @property
    def rounds(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def clients(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def edge(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def summary(self) -> Mapping[str, Any] | None: ...
    @property
    def own_fields(self) -> OwnFields: ...
    @property
    def names(self) -> DataNames: ...


@dataclass(frozen=True)
class Target:
    """The value of a metric that runs have as their target."""

    metric: str
    value: float
    own: OwnFields = field(default_factory=dict, compare=False, repr=False)  # of the run's own metrics

    @property
    def declared(self) -> Field:
        """The declaration of the metric."""
        return describe(self.metric, self.own)

    @property
    def written(self) -> str:
        """The value formatted for readers: `90%`."""
        unit = self.declared.units[0]
        return f"{self.value / unit.size:.6g}{unit.name}"

    def __str__(self) -> str:
        return f"{self.declared.title} {self.written}"


@dataclass(frozen=True)
class RunGroup:
    """A label and its runs, which differ in the seed alone unless they are `mixed`.

    `parts` has the parts of the label, by the setting that each one describes.
    """

    label: str
    runs: Sequence[RunView]
    mixed: bool = False
    parts: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def target(self) -> Target | None:
        """The runs' target; None if they have no target or different ones."""
        targets = {_target(run) for run in self.runs}
        return targets.pop() if len(targets) == 1 else None


def group_runs(runs: Iterable[RunView], labels: DisplayNames | None = None) -> list[RunGroup]:
    """Group the runs whose settings give equal results, apart from the seed.

    Groups are in order of their experiments' first appearance, and within a name in the order of their settings,
    numbers by value. A seed that was run twice counts once, as its last finished run, because a repeat is not a new
    sample.
    """
    groups: dict[str, tuple[dict[str, Any], dict[Any, RunView]]] = {}
    for run in runs:
        config = omit(run.effective, ("seed", "seeds"))
        _, seeds = groups.setdefault(digest(config), (config, {}))
        seed = run.config.get("seed")
        if seed not in seeds or run.summary is not None or seeds[seed].summary is None:
            seeds[seed] = run
    configs = [config for config, _ in groups.values()]
    named = zip(label_configurations(configs, labels or DisplayNames()), groups.values(), strict=True)
    ordered = sorted(named, key=lambda one: one[0].order)
    return [RunGroup(name.label, list(seeds.values()), parts=name.parts) for name, (_, seeds) in ordered]


def group_begun(runs: Sequence[RunView], labels: DisplayNames | None = None) -> list[RunGroup]:
    """Group the runs that have recorded a round, because a chart cannot show the others; all runs if none has."""
    return group_runs([run for run in runs if run.rounds] or runs, labels)


def regroup(groups: Sequence[RunGroup], keys: Sequence[str], labels: DisplayNames | None = None) -> list[RunGroup]:
    """Merge the runs that have the same values of these settings, and label and sort them by these values.

    Runs with simulated and with measured seconds stay in separate groups, because a mean over both is meaningless.
    """
    for key in keys:
        check_key(key, groups)
    merged: dict[str, tuple[dict[str, Any], str, dict[int, list[RunView]]]] = {}  # then by their groups
    for number, group in enumerate(groups):
        for run in group.runs:
            values, clock = dict(settings(run.config)), str(run.effective.get("clock") or "")
            own = {key: values.get(key) for key in keys}
            merged.setdefault(f"{own} {clock}", (own, clock, {}))[2].setdefault(number, []).append(run)
    words, clocks = labels or DisplayNames(), {clock for _, clock, _ in merged.values()}
    named = zip(label_rows([own for own, _, _ in merged.values()], keys, words), merged.values(), strict=True)
    return [
        RunGroup(
            words.group(f"{name.label} ({clock})" if len(clocks) > 1 else name.label),
            [*chain(*parts.values())],
            len(parts) > 1 or any(groups[number].mixed for number in parts),
            name.parts if len(clocks) == 1 else {**name.parts, "clock": clock},
        )
        for name, (_, clock, parts) in sorted(named, key=lambda one: one[0].order)
    ]


def varied(runs: Iterable[RunView]) -> dict[str, list[Any]]:
    """Return the settings that affect results and differ between runs, with a value per run; without name and seed."""
    found = [dict(settings(run.effective)) for run in runs]
    keys = dict.fromkeys(key for one in found for key in one if key not in ("name", "seed", "seeds"))
    columns = {key: [one.get(key) for one in found] for key in keys}
    return {key: values for key, values in columns.items() if any(value != values[0] for value in values)}


def own_fields(runs: Iterable[RunView]) -> OwnFields:
    """Return the fields of the runs' own metrics; a metric that runs declare differently is left out."""
    found: dict[str, Field] = {}
    differing = set()
    for run in runs:
        for name, declared in run.own_fields.items():
            if found.setdefault(name, declared) != declared:
                differing.add(name)
    return {name: declared for name, declared in found.items() if name not in differing}


def describe_in(groups: Iterable[RunGroup], name: str) -> Field:
    """Return the declaration of a field, which may be a metric that the runs of these groups declare."""
    return describe(name, own_fields(run for group in groups for run in group.runs))


def describe_timed(groups: Iterable[RunGroup], name: str) -> Field:
    """Return the declaration of a field; the title of edge time includes the clock of these groups."""
    found = list(groups)
    declared = describe_in(found, name)
    if not declared.name.removeprefix("mean_").removeprefix("median_").startswith("sim_"):
        return declared
    clocks = sorted({str(run.effective.get("clock") or "simulated") for group in found for run in group.runs})
    return replace(declared, title=f"{' or '.join(clocks)} {declared.title}")


def has(record: Mapping[str, Any], field: str) -> bool:
    """Whether a field was measured: it may be absent, or null if it was not finite."""
    return record.get(field) is not None


def check_key(key: str, groups: Sequence[RunGroup]) -> None:
    """Raise a ConfigError that names the nearest setting if no run has this one."""
    known = sorted({path for group in groups for path, _ in settings(group.runs[0].config)})
    if key not in known:
        raise ConfigError(f"no run has a setting {key!r}{nearest(synonym(key), known)}; settings: {', '.join(known)}")


def _target(run: RunView) -> Target | None:
    target = run.config.get("target")
    if not target or target.get("value") is None:
        return None
    return Target(target["metric"], target["value"], run.own_fields)
