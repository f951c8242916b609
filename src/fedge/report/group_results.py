"""One result of each group of runs, for charts with one mark per group."""

from __future__ import annotations

from collections.abc import Sequence

from fedge.core.errors import ConfigError
from fedge.core.fields import Unit, fitting, is_to_target
from fedge.report.groups import RunGroup, Target
from fedge.report.run_results import check_outcome, outcome
from fedge.report.statistics import Reached, to_target


def group_results(groups: Sequence[RunGroup], field: str) -> list[Reached]:
    """Return a result of each group over its finished runs. Raises ConfigError if no run can have it."""
    if not groups:
        raise ConfigError("a chart needs at least one run, got none; check the path of the runs")
    check_outcome([run for group in groups for run in group.runs], field)
    return [
        to_target([outcome(run, field) for run in group.runs if run.summary is not None], group.mixed)
        for group in groups
    ]


def unit_of(units: Sequence[Unit], results: Sequence[Reached]) -> Unit:
    """Return the unit that fits the largest of these results."""
    return fitting(units, max((result.estimate.mean for result in results if result.estimate), default=0.0))


def target_note(groups: Sequence[RunGroup], *fields: str) -> str:
    """Return a note on the target of these costs to target; empty if no field is one."""
    if not any(is_to_target(field) for field in fields):
        return ""
    targets: dict[Target | None, None] = dict.fromkeys(group.target for group in groups)
    goals = [str(target) for target in targets if target]
    return f"target: {goals[0]}" if len(goals) == 1 else "targets differ between groups"
