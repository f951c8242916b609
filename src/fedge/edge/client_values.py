"""Quantities that may differ between clients: one value for all, one per client, or a distribution."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta

from fedge.core.keys import generator
from fedge.core.schema import Options

_LEAST = 0.01  # normal draws are cut off at this fraction of the mean


class Normal(Options, tag="normal"):
    """One normal draw per client, cut off below a hundredth of the mean."""

    mean: Annotated[float, Meta(gt=0, description="mean over clients")]
    std: Annotated[float, Meta(ge=0, description="standard deviation over clients")]

    def draw(self, rng: np.random.Generator) -> float:
        return max(rng.normal(self.mean, self.std), _LEAST * self.mean)


class LogNormal(Options, tag="lognormal"):
    """One log-normal draw per client."""

    median: Annotated[float, Meta(gt=0, description="median over clients")]
    sigma: Annotated[float, Meta(ge=0, description="standard deviation of the natural logarithm")]

    def draw(self, rng: np.random.Generator) -> float:
        return float(self.median * np.exp(self.sigma * rng.standard_normal()))


class UniformRange(Options, tag="uniform"):
    """One uniform draw per client between two bounds."""

    low: Annotated[float, Meta(gt=0, description="lower bound")]
    high: Annotated[float, Meta(gt=0, description="upper bound")]

    def __post_init__(self) -> None:
        if self.high < self.low:
            raise ValueError(f"high must be at least low ({self.low:g}), got {self.high:g}")

    def draw(self, rng: np.random.Generator) -> float:
        return float(rng.uniform(self.low, self.high))


Positive = Annotated[float, Meta(gt=0)]
Distribution = Normal | LogNormal | UniformRange
Quantity = Positive | list[Positive] | Distribution
"""One number for all clients, one per client, or a distribution over clients."""


class ClientValues:
    """The values of a quantity in one run. A client's value is drawn on first use and then stays the same."""

    def __init__(self, quantity: Quantity, purpose: str, num_clients: int, seed: int) -> None:
        self._purpose, self._seed = purpose, seed
        self._distribution = quantity if isinstance(quantity, Distribution) else None
        if isinstance(quantity, (int, float)):
            self._known = np.broadcast_to(float(quantity), num_clients)
        elif isinstance(quantity, list):
            self._known = np.array(quantity, np.float64)
        else:
            self._known = np.full(num_clients, np.nan)  # not drawn yet

    def of(self, ids: np.ndarray) -> np.ndarray:
        """Return the value of each of these clients."""
        found = self._known[ids]
        if self._distribution is not None and (unknown := np.isnan(found)).any():
            for client in ids[unknown].tolist():
                self._known[client] = self._distribution.draw(generator(self._seed, self._purpose, client))
            found = self._known[ids]
        return np.asarray(found)
