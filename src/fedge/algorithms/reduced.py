"""Robust aggregation: a wrapper that replaces the mean of any algorithm with another reducer."""

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
    """Options of every reducer: which answers to reject."""

    max_norm: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="largest allowed L2 norm of the change of each vector in an upload (default: no limit)"),
    ] = None
    on_bad: Annotated[
        Literal["stop", "reject"] | None,
        Meta(
            description="a bad upload (not finite, too large, malformed) stops the run, or only the upload is "
            "rejected (default: stop; under fedge server, reject)"
        ),
    ] = None


class ByMean(Gated, tag="mean"):
    """The mean, with the algorithm's weighting."""

    def reducer(self) -> Reduce:
        return Mean


class ByMedian(Gated, tag="median"):
    """The coordinate-wise median, with equal weights."""

    def reducer(self) -> Reduce:
        return Median


class ByTrimmedMean(Gated, tag="trimmed_mean"):
    """The coordinate-wise mean without the largest and smallest values, with equal weights."""

    fraction: Annotated[float, Meta(ge=0, lt=0.5, description="share of clients cut off at each end")] = 0.1

    def reducer(self) -> Reduce:
        return partial(TrimmedMean, fraction=self.fraction)


class ByKrum(Gated, tag="krum"):
    """The upload nearest to the others, or the mean of several such uploads."""

    fraction: Annotated[float, Meta(ge=0, lt=0.5, description="share of clients that may be hostile")] = 0.1
    keep: Annotated[int, Meta(ge=1, description="number of uploads to keep; more than one is Multi-Krum")] = 1

    def reducer(self) -> Reduce:
        return partial(Krum, fraction=self.fraction, keep=self.keep)


ReduceOptions = ByMean | ByMedian | ByTrimmedMean | ByKrum


def reduced(inner: Build, reduce: Reduce) -> Build:
    """Return the algorithm with every mean over clients replaced."""

    def replace_mean(exchange: Exchange) -> Exchange:
        return exchange._replace(reduce=reduce) if exchange.reduce is Mean else exchange

    def build(layout: Layout) -> Algorithm:
        algorithm = inner(layout)
        return algorithm._replace(round=lambda state, info: map_exchanges(algorithm.round(state, info), replace_mean))

    return build
