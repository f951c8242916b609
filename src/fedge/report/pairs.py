"""Two settings compared seed by seed, which takes the luck of the seed out of the difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Literal

from fedge.report.groups import RunGroup
from fedge.report.outcomes import lower_is_better, outcome
from fedge.report.statistics import LEVEL, Estimate, interval

Verdict = Literal["better", "worse", "no difference shown"]


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
    sign = -1.0 if lower_is_better(name) else 1.0
    gains = [_gain(a, b, sign) for a, b in both]
    wins, losses = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    complete = [a - b for a, b in both if a is not None and b is not None]
    difference = interval(complete) if complete else None
    by: Literal["interval", "wins"] = "interval" if len(complete) == len(both) else "wins"
    verdict = _by_interval(difference, sign) if by == "interval" else _by_wins(wins, losses)
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


def _gain(a: float | None, b: float | None, sign: float) -> float:
    if a is not None and b is not None:
        return sign * (a - b)
    return float(a is not None) - float(b is not None)


def _by_interval(difference: Estimate | None, sign: float) -> Verdict:
    if difference is None or difference.low is None or difference.high is None:
        return "no difference shown"  # a single pair has no interval
    if difference.low <= 0 <= difference.high:
        return "no difference shown"
    return "better" if sign * difference.mean > 0 else "worse"


def _by_wins(wins: int, losses: int) -> Verdict:
    if sign_test(wins, losses) > 1 - LEVEL:
        return "no difference shown"
    return "better" if wins > losses else "worse"
