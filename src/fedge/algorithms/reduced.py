"""Another reducer in place of the mean, around any algorithm: robust aggregation."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from msgspec import Meta

from fedge.core.algorithm import Algorithm, Build, Exchange
from fedge.core.drive import map_exchanges
from fedge.core.layout import Layout
from fedge.core.reduce import Krum, Mean, Median, Reduce, TrimmedMean
from fedge.core.schema import Options


class Gated(Options):
    """What every reducer can be told of answers that it is not to count."""

    max_norm: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="largest L2 norm of the change of each vector in an upload; a larger one is bad (any)"),
    ] = None
    on_bad: Annotated[
        Literal["stop", "reject"] | None,
        Meta(
            description="a bad upload (not finite, too large, of another form) stops the run, or costs only itself "
            "(stop; under fedge server reject)"
        ),
    ] = None


class ByMean(Gated, tag="mean"):
    """The mean, weighted as the algorithm says."""

    def reducer(self) -> Reduce:
        return Mean


class ByMedian(Gated, tag="median"):
    """The median of every coordinate, all clients alike."""

    def reducer(self) -> Reduce:
        return Median


class ByTrimmedMean(Gated, tag="trimmed_mean"):
    """The mean of every coordinate without its largest and smallest values, all clients alike."""

    fraction: Annotated[float, Meta(ge=0, lt=0.5, description="share of clients cut off at each end")] = 0.1

    def reducer(self) -> Reduce:
        return partial(TrimmedMean, fraction=self.fraction)


class ByKrum(Gated, tag="krum"):
    """The upload that is nearest to the others, or the mean of several such."""

    fraction: Annotated[float, Meta(ge=0, lt=0.5, description="share of clients that may be hostile")] = 0.1
    keep: Annotated[int, Meta(ge=1, description="uploads that are kept; with more than one, Multi-Krum")] = 1

    def reducer(self) -> Reduce:
        return partial(Krum, fraction=self.fraction, keep=self.keep)


ReduceOptions = ByMean | ByMedian | ByTrimmedMean | ByKrum


def reduced(inner: Build, reduce: Reduce) -> Build:
    """The algorithm with every mean over clients replaced."""

    def replace_mean(exchange: Exchange) -> Exchange:
        return exchange._replace(reduce=reduce) if exchange.reduce is Mean else exchange

    def build(layout: Layout) -> Algorithm:
        algorithm = inner(layout)
        return algorithm._replace(round=lambda state, info: map_exchanges(algorithm.round(state, info), replace_mean))

    return build
