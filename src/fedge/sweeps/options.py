"""The options of the [sweep] table of an experiment file."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

from msgspec import Meta, field

from fedge.core.schema import Options

Condition = str | list[str]
"""`algorithm.name=scaffold`, or a list of conditions that must all hold."""


class Range(Options, tag=False):
    """Evenly spaced values, both ends included: by `step`, or `num` of them; with `log`, evenly spaced ratios."""

    start: Annotated[float, Meta(description="first value")]
    stop: Annotated[float, Meta(description="last value; with step, an upper limit")]
    step: Annotated[float | None, Meta(description="difference between neighbouring values")] = None
    num: Annotated[Annotated[int, Meta(ge=2)] | None, Meta(description="number of values")] = None
    log: Annotated[bool, Meta(description="logarithmic spacing: a constant ratio between neighbouring values")] = False

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
        """Return the values, rounded to 12 significant digits to remove float errors."""
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
    """Successive halving: all points train a few rounds, and only the best on the validation split continue."""

    rounds: Annotated[int, Meta(ge=1, description="rounds of the first rung, which every point trains")]
    factor: Annotated[
        int, Meta(ge=2, description="at each rung, one in `factor` points continues, to `factor` times the rounds")
    ] = 3

    def rungs(self, rounds: int) -> list[int]:
        """Return the rounds after which points are compared; the last is the end of the run."""
        found = []
        reached = self.rounds
        while reached < rounds:
            found.append(reached)
            reached *= self.factor
        return [*found, rounds]

    def survivors(self, num_points: int) -> int:
        """Return how many of `num_points` points continue."""
        return max(1, -(-num_points // self.factor))

    def later_rounds(self, rungs: list[int], num_points: int) -> int:
        """Return the total rounds after the first of these rungs, with one run per point."""
        total = 0
        for before, after in pairwise(rungs):
            num_points = self.survivors(num_points)
            total += num_points * (after - before)
        return total


class SweepOptions(Options, tag=False):
    """How a sweep covers its grid, and the resources it may use."""

    axes: Annotated[
        dict[str, Any], Meta(description="additional axes by path, needed to vary a setting that is itself a list")
    ] = field(default_factory=dict)
    zip: Annotated[list[list[str]], Meta(description="groups of axes that advance together instead of crossing")] = (
        field(default_factory=list)
    )
    when: Annotated[list[When], Meta(description="axes for points that meet a condition: if, key, values")] = field(
        default_factory=list
    )
    exclude: Annotated[list[Condition], Meta(description="conditions under which a point is excluded")] = field(
        default_factory=list
    )
    fraction: Annotated[float, Meta(gt=0, le=1, description="share of the points to run, chosen at random")] = 1.0
    seed: Annotated[int, Meta(ge=0, description="seed of that choice")] = 1
    metric: Annotated[
        str | None, Meta(description="metric that compares points; only a metric of the validation split ranks them")
    ] = None
    halving: Annotated[Halving | None, Meta(description="stop points early that perform worse than others")] = None
    workers: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="maximum number of processes (default: one per processor)")
    ] = None
    memory_mb: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="memory limit of all runs together (default: 80% of free memory)"),
    ] = None
    retries: Annotated[int, Meta(ge=0, description="retries of a run that ran out of memory or was killed")] = 3
