"""The runs of one experiment that differ in nothing but the seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fedge.report.quantities import metric


class Run(Protocol):
    """What a report needs of a run; `fedge.runs.read` has it."""

    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def rounds(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def summary(self) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True)
class Target:
    """The value of a metric that runs are asked to reach."""

    metric: str
    value: float

    @property
    def written(self) -> str:
        """The value as it is read: `90%`."""
        (unit,) = metric(self.metric).units
        return f"{self.value / unit.size:.6g}{unit.name}"

    def __str__(self) -> str:
        return f"{metric(self.metric).title} {self.written}"


@dataclass(frozen=True)
class Group:
    """A label and the seeds behind it."""

    label: str
    runs: Sequence[Run]

    @property
    def target(self) -> Target | None:
        """What the runs of the group are to reach; all have the same configuration."""
        target = self.runs[0].config.get("target")
        return Target(target["metric"], target["value"]) if target else None


def group_runs(runs: Iterable[Run]) -> list[Group]:
    """Runs of one configuration together, in order of first appearance.

    A seed that was run twice counts once, as its last finished run: a repeat is no new sample.
    """
    groups: list[tuple[dict[str, Any], dict[Any, Run]]] = []
    for run in runs:
        settings = {key: value for key, value in run.config.items() if key not in ("seed", "seeds")}
        seeds = next((seeds for known, seeds in groups if known == settings), None)
        if seeds is None:
            seeds = {}
            groups.append((settings, seeds))
        seed = run.config.get("seed")
        if seed not in seeds or run.summary is not None or seeds[seed].summary is None:
            seeds[seed] = run
    labels = _labels([settings for settings, _ in groups])
    return [Group(label, list(seeds.values())) for label, (_, seeds) in zip(labels, groups, strict=True)]


def has(record: Mapping[str, Any], field: str) -> bool:
    """Whether a field was measured: it may be absent, or null where it was not a finite number."""
    return record.get(field) is not None


def _labels(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of configurations; those that share one are told apart by settings in which they differ."""
    names = [str(config.get("name", "unnamed")) for config in configs]
    details: dict[int, str] = {}
    for name in names:
        alike = {i: dict(_settings(configs[i])) for i in range(len(configs)) if names[i] == name}
        details.update(zip(alike, _details(list(alike.values())), strict=True))
    return [f"{name} ({details[i]})" if details[i] else name for i, name in enumerate(names)]


def _details(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """As few settings as it takes to tell these apart, in the order of the configuration."""
    parts: list[tuple[str, ...]] = [()] * len(settings)
    for path in dict.fromkeys(path for one in settings for path in one):
        more = [(*part, _detail(path, one.get(path))) for part, one in zip(parts, settings, strict=True)]
        if len(set(more)) > len(set(parts)):
            parts = more
    return [", ".join(part) for part in parts]


def _settings(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _detail(path: str, value: Any) -> str:
    key = path.rpartition(".")[2]
    return str(value) if key == "name" else f"{key}={value}"
