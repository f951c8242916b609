"""The round in which the mean over seeds reaches the target; not the mean of the seeds' rounds to target."""

from __future__ import annotations

from fedge.report.groups import RunGroup, has
from fedge.report.statistics import average

ROUNDS_OF_MEAN = "rounds_to_target_of_mean"
"""The name of the statistic in tables and exports, beside `rounds_to_target`."""


def rounds_of_mean(group: RunGroup) -> int | None:
    """Return the first round in which the metric's mean over the finished seeds reaches the target.

    Only rounds in which all of these seeds measured the metric have a mean: a seed that stopped at its target has no
    later values. None if no such mean reaches the target, or if the runs differ in more than seeds.
    """
    target, runs = group.target, [run for run in group.runs if run.summary is not None]
    if target is None or group.mixed or not runs:
        return None
    if all((run.summary or {}).get("rounds_to_target", 0) is None for run in runs):
        return None  # the mean reaches it only if some seed does; otherwise no record needs to be read
    metric, rank = target.metric, target.declared.rank
    curves = [{record["round"]: record[metric] for record in run.rounds if has(record, metric)} for run in runs]
    shared = sorted(set.intersection(*(set(curve) for curve in curves)))
    means = ((number, average([curve[number] for curve in curves])) for number in shared)
    return next((number for number, mean in means if rank(mean) <= rank(target.value)), None)
