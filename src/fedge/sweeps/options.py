"""What the [sweep] table of an experiment file says."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

from msgspec import Meta, field

from fedge.core.schema import Options

Condition = str | list[str]
"""`algorithm.name=scaffold`, or several of these that must all hold."""


class Range(Options, tag=False):
    """Evenly spaced values, both ends included: by `step`, or `num` of them; with `log`, evenly spaced ratios."""

    start: Annotated[float, Meta(description="first value")]
    stop: Annotated[float, Meta(description="last value; with a step, no value is beyond it")]
    step: Annotated[float | None, Meta(description="from a value to the next")] = None
    num: Annotated[Annotated[int, Meta(ge=2)] | None, Meta(description="how many values")] = None
    log: Annotated[bool, Meta(description="a value is the one before times a constant")] = False

    def __post_init__(self) -> None:
        if (self.step is None) == (self.num is None):
            raise ValueError("expected one of step and num, such as { start = 1, stop = 10, step = 1 }")
        if self.start == self.stop:
            raise ValueError(f"start and stop must differ, got {self.start:g} for both")
        if self.step is not None and self.step * (self.stop - self.start) <= 0:
            raise ValueError(f"step must lead from start to stop, got {self.step:g}")
        if self.log and (self.step is not None or self.start <= 0 or self.stop <= 0):
            raise ValueError("log needs num, and a start and a stop above 0")

    def values(self) -> list[float]:
        """The values, without the last digits that only rounding made."""
        if self.num is None:
            assert self.step is not None
            count = int((self.stop - self.start) / self.step * (1 + 1e-9)) + 1
            found = [self.start + i * self.step for i in range(count)]
        elif self.log:
            ratio = self.stop / self.start
            found = [self.start * ratio ** (i / (self.num - 1)) for i in range(self.num)]
        else:
            found = [self.start + (self.stop - self.start) * i / (self.num - 1) for i in range(self.num)]
        return [float(f"{value:.12g}") for value in found]


class When(Options, tag=False):
    """An axis that only some points have."""

    condition: Condition = field(name="if")
    key: str
    values: list[Any] | Range


class Halving(Options, tag=False):
    """Successive halving: all points train a little, and only the best of them on the validation split continue."""

    rounds: Annotated[int, Meta(ge=1, description="rounds that every point trains")]
    factor: Annotated[
        int, Meta(ge=2, description="one point in so many goes on, for so many times the rounds, up to all of them")
    ] = 3

    def rungs(self, rounds: int) -> list[int]:
        """Rounds after which points are compared; the last is the end of the run."""
        found = []
        reached = self.rounds
        while reached < rounds:
            found.append(reached)
            reached *= self.factor
        return [*found, rounds]

    def survivors(self, num_points: int) -> int:
        """How many of so many points go on."""
        return max(1, -(-num_points // self.factor))

    def later_rounds(self, rungs: list[int], num_points: int) -> int:
        """Rounds still to come after the first of these rungs, one run for each point."""
        total = 0
        for before, after in pairwise(rungs):
            num_points = self.survivors(num_points)
            total += num_points * (after - before)
        return total


class SweepOptions(Options, tag=False):
    """How a sweep goes through its grid, and with what means."""

    axes: Annotated[
        dict[str, Any],
        Meta(description="further axes by their path; the way to vary a setting that is itself a list"),
    ] = field(default_factory=dict)
    zip: Annotated[list[list[str]], Meta(description="groups of axes that advance together instead of crossing")] = (
        field(default_factory=list)
    )
    when: Annotated[list[When], Meta(description="axes that exist only where a condition holds: if, key, values")] = (
        field(default_factory=list)
    )
    exclude: Annotated[list[Condition], Meta(description="conditions under which a point is left out")] = field(
        default_factory=list
    )
    fraction: Annotated[float, Meta(gt=0, le=1, description="share of the points that is run, chosen at random")] = 1.0
    seed: Annotated[int, Meta(ge=0, description="of that choice")] = 1
    metric: Annotated[
        str | None, Meta(description="what points are compared by; only a metric of the validation split ranks them")
    ] = None
    halving: Annotated[Halving | None, Meta(description="stop points early that do worse than others")] = None
    workers: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="processes at most (as many as processors)")
    ] = None
    memory_mb: Annotated[
        Annotated[float, Meta(gt=0)] | None, Meta(description="memory of all runs together (80% of what is free)")
    ] = None
    retries: Annotated[int, Meta(ge=0, description="further tries of a run that ran out of memory or was killed")] = 3
