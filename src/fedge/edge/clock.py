"""How long a round takes at the edge: the clock of fixed links, without cells.

A client needs |down|/D + minibatches * beta + |up|/U seconds for an exchange, and an exchange is as slow as its slowest
client.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal, NamedTuple

import numpy as np
from msgspec import Meta

from fedge.core.algorithm import Reply
from fedge.core.errors import ConfigError
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
Quantity = Positive | list[Positive] | Normal | LogNormal | Between
"""One number for all clients, one for each, or a distribution over them."""


class Times(NamedTuple):
    """Seconds of one round, summed over its exchanges: means over clients, which with the wait make up the whole."""

    total: float = 0.0
    down: float = 0.0
    compute: float = 0.0
    up: float = 0.0

    @property
    def wait(self) -> float:
        """What a client spent, on average, waiting for the slowest one."""
        return max(0.0, self.total - self.down - self.compute - self.up)  # not less by rounding


class FixedClock(Options, tag=False):
    """Links of fixed rate and a fixed time for a minibatch; defaults as on a Raspberry Pi 3B+ with a small network."""

    clock: Annotated[Literal["fixed"], Meta(description="how simulated time is counted")] = "fixed"
    down_mbps: Annotated[
        Quantity, Meta(description="download rate in Mbit/s: a number, one per client, or a distribution")
    ] = 20.0
    up_mbps: Annotated[Quantity, Meta(description="upload rate in Mbit/s, likewise")] = 5.0
    seconds_per_step: Annotated[Quantity, Meta(description="seconds for one minibatch, likewise")] = 0.017

    def check(self, num_clients: int) -> None:
        """Refuse lists that are not one value for each client."""
        problems = [
            f"edge.{name}: expected one value for each of {num_clients} clients, got {len(value)}"
            for name in ("down_mbps", "up_mbps", "seconds_per_step")
            if isinstance(value := getattr(self, name), list) and len(value) != num_clients
        ]
        if problems:
            raise ConfigError(*problems)

    def times(self, replies: list[Reply], seed: int) -> Times:
        """The simulated time of a round."""
        whole = Times()
        for reply in replies:
            if not reply.ids:
                continue
            of = partial(self._values, ids=reply.ids, seed=seed)
            down = reply.costs.bytes_down * 8e-6 / of("down_mbps")
            compute = reply.costs.batches * of("seconds_per_step")
            up = reply.costs.bytes_up * 8e-6 / of("up_mbps")
            slowest = float((down + compute + up).max())
            parts = (slowest, float(down.mean()), float(compute.mean()), float(up.mean()))
            whole = Times(*(before + part for before, part in zip(whole, parts, strict=True)))
        return whole

    def _values(self, name: str, ids: tuple[int, ...], seed: int) -> np.ndarray:
        quantity: Quantity = getattr(self, name)
        if isinstance(quantity, (int, float)):
            return np.full(len(ids), float(quantity))
        if isinstance(quantity, list):
            return np.array([quantity[client] for client in ids])
        return np.array([quantity.draw(generator(seed, f"edge/{name}", client)) for client in ids])
