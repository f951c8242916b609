"""A number that may differ from client to client."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

import numpy as np
from msgspec import Meta

from fedge.core.keys import generator
from fedge.core.schema import Options

_LEAST = 0.01  # of the mean: normal draws below that are cut off


class Normal(Options, tag="normal"):
    """One draw for each client, cut off at a hundredth of the mean."""

    mean: Annotated[float, Meta(gt=0, description="mean over clients")]
    std: Annotated[float, Meta(ge=0, description="standard deviation over clients")]

    def draw(self, rng: np.random.Generator) -> float:
        return max(rng.normal(self.mean, self.std), _LEAST * self.mean)


class LogNormal(Options, tag="lognormal"):
    """One draw for each client whose logarithm is normal."""

    median: Annotated[float, Meta(gt=0, description="half of the clients have less")]
    sigma: Annotated[float, Meta(ge=0, description="standard deviation of the natural logarithm")]

    def draw(self, rng: np.random.Generator) -> float:
        return float(self.median * np.exp(self.sigma * rng.standard_normal()))


class Between(Options, tag="uniform"):
    """One draw for each client, uniform between two bounds."""

    low: Annotated[float, Meta(gt=0, description="lower bound")]
    high: Annotated[float, Meta(gt=0, description="upper bound")]

    def __post_init__(self) -> None:
        if self.high < self.low:
            raise ValueError(f"high must be at least low ({self.low:g}), got {self.high:g}")

    def draw(self, rng: np.random.Generator) -> float:
        return float(rng.uniform(self.low, self.high))


Positive = Annotated[float, Meta(gt=0)]
Distribution = Normal | LogNormal | Between
Quantity = Positive | list[Positive] | Distribution
"""One number for all clients, one for each, or a distribution over them."""


def values(quantity: Quantity, purpose: str, ids: np.ndarray, seed: int) -> np.ndarray:
    """That of each of these clients, always the same one."""
    if isinstance(quantity, (int, float)):
        return np.full(len(ids), float(quantity))
    if isinstance(quantity, list):
        return np.asarray(np.take(quantity, ids), np.float64)
    return np.array([_draw(quantity, purpose, client, seed) for client in ids.tolist()], np.float64)


@lru_cache(maxsize=1 << 18)
def _draw(quantity: Distribution, purpose: str, client: int, seed: int) -> float:
    return quantity.draw(generator(seed, purpose, client))
