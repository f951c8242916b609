"""Paired comparison: the difference between two settings seed by seed, which removes the variance between seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Literal

from fedge.core.effect import settings
from fedge.core.errors import ConfigError, nearest
from fedge.core.fields import PERCENT, Field, Unit, is_to_target, titled
from fedge.report.groups import RunGroup, check_key, describe_in, varied
from fedge.report.labels import ALGORITHM, DisplayNames
from fedge.report.run_results import outcome
from fedge.report.statistics import LEVEL, MIN_SEEDS, Estimate, interval

Verdict = Literal["better", "worse", "higher", "lower", "no difference shown"]
"""`higher` and `lower` are for results where neither direction is better."""


@dataclass(frozen=True)
class Pairing:
    """A comparison of two settings over the seeds that both were run with.

    `difference` is the mean of first minus second over the pairs in which both have a value. If some run did not reach
    the target, its pair is not in that mean, so the verdict counts wins (`by` is "wins").
    """

    first: str
    second: str
    outcome: str
    pairs: int
    difference: Estimate | None
    wins: int
    losses: int
    verdict: Verdict
    by: Literal["interval", "wins"]


def difference_title(declared: Field, unit: Unit) -> str:
    """Return the title of a difference; for percentages it is in points, because a percentage would be relative."""
    shown = unit._replace(name="% points") if unit in PERCENT else unit
    return f"difference in {titled(declared.title, shown)}"


def pair(first: RunGroup, second: RunGroup, name: str) -> Pairing:
    """Compare two settings by one outcome; a seed that reached the target beats one that did not."""
    seeds = {run.config.get("seed"): run for run in second.runs if run.summary is not None}
    both = [
        (outcome(run, name), outcome(seeds[seed], name))
        for run in first.runs
        if run.summary is not None and (seed := run.config.get("seed")) in seeds
    ]
    if not is_to_target(name):  # an outcome that was not measured is not a loss
        both = [(a, b) for a, b in both if a is not None and b is not None]
    declared = describe_in((first, second), name)
    gains = [_gain(a, b, declared) for a, b in both]
    wins, losses = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    complete = [a - b for a, b in both if a is not None and b is not None]
    difference = interval(complete) if complete else None
    by: Literal["interval", "wins"] = "interval" if len(complete) == len(both) else "wins"
    shown = _differs(difference) if by == "interval" else sign_test(wins, losses) <= 1 - LEVEL
    ahead = declared.rank(difference.mean) < 0 if by == "interval" and difference else wins > losses
    verdict = _verdict(declared, ahead) if shown else "no difference shown"
    return Pairing(first.label, second.label, name, len(both), difference, wins, losses, verdict, by)


@dataclass(frozen=True)
class Baseline:
    """The groups that all others are compared with; readers see `title`.

    Each group is compared with the baseline group that has the same values of `keys`, the settings in which the
    baseline groups differ; without such settings, all have the same baseline.
    """

    title: str
    groups: Sequence[RunGroup]
    keys: Sequence[str] = ()

    def of(self, group: RunGroup) -> RunGroup | None:
        """Return the baseline of a group; None if the group is part of the baseline or has no counterpart in it."""
        if any(group.label == other.label for other in self.groups):
            return None
        own = _values(group, self.keys)
        return next((other for other in self.groups if _values(other, self.keys) == own), None)


def find_baseline(groups: Sequence[RunGroup], text: str | None = None) -> Baseline:
    """Return the baseline that `text` names, by default the first group.

    `text` is the label of a group, the name of an experiment or of an algorithm, or `KEY=VALUE` with a setting as key.
    Raises ConfigError if it names no group, or all of them.
    """
    if text is None:
        return Baseline(groups[0].label, groups[:1])
    wanted = text.casefold()
    named = [group for group in groups if group.label.casefold() == wanted]
    named = named or [group for group in groups if str(group.runs[0].config.get("name")).casefold() == wanted]
    if len(named) == 1:
        return Baseline(named[0].label, named)
    key, found, value = text.partition("=")
    key, value = (key.strip(), value.strip()) if found else (ALGORITHM, text)
    if found:
        check_key(key, groups)
    chosen = named or [group for group in groups if _matches(group, key, value)]
    if not chosen:
        known = [group.label for group in groups]
        if found:
            known = list(dict.fromkeys(f"{key}={_value(group, key)}" for group in groups))
        raise ConfigError(
            f"baseline: no group of runs is {text!r}{nearest(text, known)}; there are: {'; '.join(known)}"
        )
    if len(chosen) == len(groups):
        raise ConfigError(f"baseline: all runs are {text!r}, so none is left to compare; name fewer")
    if len(chosen) == 1:
        return Baseline(chosen[0].label, chosen)
    title = text if named else DisplayNames().assignments(key, [_value(chosen[0], key)])[0]
    return Baseline(f"{title}, other settings equal", chosen, list(varied([group.runs[0] for group in chosen])))


def pair_all(groups: Sequence[RunGroup], name: str, baseline: Baseline | None = None) -> list[Pairing]:
    """Compare every group with its baseline, by default the first group; leave out those that share no seed with it."""
    against = baseline or find_baseline(groups)
    found = [pair(group, other, name) for group in groups if (other := against.of(group)) is not None]
    return [pairing for pairing in found if pairing.pairs]


def _values(group: RunGroup, keys: Sequence[str]) -> list[str]:
    found = dict(settings(group.runs[0].effective))
    return [str(found.get(key)) for key in keys]


def _value(group: RunGroup, key: str) -> object:
    return dict(settings(group.runs[0].config)).get(key)


def _matches(group: RunGroup, key: str, text: str) -> bool:
    """Whether a setting has a value, given as in the configuration, in JSON or in labels."""
    value = _value(group, key)
    if text.casefold() in (str(value).casefold(), DisplayNames().values(key, [value])[0].casefold()):
        return True
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and float(text) == value
    except ValueError:
        return False


def sign_test(wins: int, losses: int) -> float:
    """Return the probability of a split at least as uneven if both sides were equally likely to win."""
    count = wins + losses
    tail = sum(comb(count, k) for k in range(min(wins, losses) + 1)) * 0.5**count
    return min(1.0, 2 * tail)


def _gain(a: float | None, b: float | None, declared: Field) -> float:
    if a is not None and b is not None:
        return declared.rank(b) - declared.rank(a)
    return float(a is not None) - float(b is not None)


def _differs(difference: Estimate | None) -> bool:
    """Whether the interval excludes 0; fewer than three pairs decide nothing: two equal ones have a width of zero."""
    if difference is None or difference.count < MIN_SEEDS or difference.low is None or difference.high is None:
        return False
    return not difference.low <= 0 <= difference.high


def _verdict(declared: Field, ahead: bool) -> Verdict:
    if declared.better == "neither":
        return "higher" if ahead else "lower"
    return "better" if ahead else "worse"
