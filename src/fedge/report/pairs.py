"""Two settings compared seed by seed, which takes the luck of the seed out of the difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Literal

from fedge.core.fields import Field, is_to_target
from fedge.report.groups import RunGroup, describe_in
from fedge.report.outcomes import outcome
from fedge.report.statistics import LEVEL, Estimate, interval

Verdict = Literal["better", "worse", "higher", "lower", "no difference shown"]
"""Higher or lower: of a result of which neither way is better."""


@dataclass(frozen=True)
class Pairing:
    """How the first setting does against the second over the seeds that both ran.

    `difference` is the mean of first minus second over the pairs in which both have a value. Where a target was not
    reached by all, it leaves those out, and so the verdict rests on how often each side won instead.
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


def pair(first: RunGroup, second: RunGroup, name: str) -> Pairing:
    """The comparison of two settings in one outcome; a seed that reached the target beats one that did not."""
    seeds = {run.config.get("seed"): run for run in second.runs if run.summary is not None}
    both = [
        (outcome(run, name), outcome(seeds[seed], name))
        for run in first.runs
        if run.summary is not None and (seed := run.config.get("seed")) in seeds
    ]
    if not is_to_target(name):  # what was not measured did not lose
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


def pair_all(groups: Sequence[RunGroup], name: str) -> list[Pairing]:
    """Every setting after the first against the first; those that share no seed with it are left out."""
    found = [pair(group, groups[0], name) for group in groups[1:]]
    return [pairing for pairing in found if pairing.pairs]


def sign_test(wins: int, losses: int) -> float:
    """The probability of a split at least as uneven if both sides were equally likely to win."""
    count = wins + losses
    tail = sum(comb(count, k) for k in range(min(wins, losses) + 1)) * 0.5**count
    return min(1.0, 2 * tail)


def _gain(a: float | None, b: float | None, declared: Field) -> float:
    if a is not None and b is not None:
        return declared.rank(b) - declared.rank(a)
    return float(a is not None) - float(b is not None)


def _differs(difference: Estimate | None) -> bool:
    """Whether the interval leaves out 0; a single pair has no interval."""
    if difference is None or difference.low is None or difference.high is None:
        return False
    return not difference.low <= 0 <= difference.high


def _verdict(declared: Field, ahead: bool) -> Verdict:
    if declared.better == "neither":
        return "higher" if ahead else "lower"
    return "better" if ahead else "worse"
