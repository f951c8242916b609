"""Client selection: the cohort of a round."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from math import ceil, floor
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from fedge.core.algorithm import Phases
from fedge.core.errors import ConfigError
from fedge.core.keys import generator
from fedge.core.parts import Part
from fedge.core.schema import Options

Share = Annotated[float, Meta(gt=0, le=1)]
Count = Annotated[int, Meta(ge=1, le=10**9)]
Predict = Callable[[np.ndarray], Phases]
"""Predict the duration of an exchange with exactly these clients."""


class Uniform(Options, tag="uniform"):
    """Uniform sampling of clients without replacement."""

    part = Part("selection", "fedge.selections")
    fraction: Annotated[
        Share | None, Meta(description="share of all clients asked in a round (default: 0.1, unless count is set)")
    ] = None
    count: Annotated[Count | None, Meta(description="clients asked in a round; with cells, in each of them")] = None
    rounding: Annotated[
        Literal["up", "down"], Meta(description="how fraction times clients is rounded to a number, at least 1")
    ] = "up"

    def __post_init__(self) -> None:
        if self.fraction is not None and self.count is not None:
            raise ValueError("fraction and count exclude each other; give one of them")

    @property
    def needs_deadline(self) -> bool:
        """Whether this selection requires edge.deadline_s."""
        return False

    def number(self, num_clients: int) -> int:
        """Return the number of clients to ask, at most `num_clients`."""
        return self._rounded(num_clients) if self.count is None else min(self.count, num_clients)

    def check(self, num_clients: int) -> None:
        """Raise a ConfigError if `count` exceeds the number of clients."""
        if self.count is not None and self.count > num_clients:
            raise ConfigError(
                f"selection.count: expected at most the {num_clients} clients of data.clients, got {self.count}"
            )

    def number_in_cell(self, num_clients: int) -> int:
        """Return the number of clients to ask in a cell of `num_clients`, at most all of them."""
        if self.count is None:
            return min(self._rounded(num_clients), num_clients)  # an empty cell asks none
        return min(self.count, num_clients)

    def share(self, num_clients: int, num_cells: int | None) -> float:
        """Return the nominal share of all clients that is asked in a round; independent of where the clients are."""
        if num_cells is None:
            return self.number(num_clients) / num_clients
        return self.fraction or 0.1 if self.count is None else min(1.0, self.count * num_cells / num_clients)

    def select(self, able: np.ndarray, number: int, seed: int, round: int, cell: int) -> np.ndarray:
        """Return at most `number` of the available clients, in client order."""
        rng = generator(seed, "selection", cell, round)
        return np.sort(rng.choice(able, min(number, len(able)), replace=False))

    def fit(self, chosen: np.ndarray, deadline_s: float | None, predict: Predict) -> np.ndarray:
        """Return the chosen clients that will be asked, given the predicted times."""
        return chosen

    def _rounded(self, num_clients: int) -> int:
        """Return the fraction of clients as an integer of at least 1, tolerating float errors up to 1e-9."""
        number = (self.fraction or 0.1) * num_clients
        return max(1, ceil(number - 1e-9) if self.rounding == "up" else floor(number + 1e-9))


class FedCS(Uniform, tag="fedcs"):
    """FedCS (Nishio and Yonetani, 2019): of the drawn clients, ask the fastest that fit into the deadline together.

    Times are predicted from the mean channel, the algorithm's configured steps, and the message sizes of the last round
    (in the first round, the model size).
    """

    @property
    def needs_deadline(self) -> bool:
        return True

    def fit(self, chosen: np.ndarray, deadline_s: float | None, predict: Predict) -> np.ndarray:
        if deadline_s is None or not len(chosen):
            return chosen
        alone = predict(chosen)
        fastest = chosen[np.argsort(alone.down + alone.compute + alone.up, kind="stable")]
        # Adding a client never shortens an exchange, so bisection finds the number that fits.
        number = bisect_right(range(1, len(fastest) + 1), deadline_s, key=lambda n: predict(fastest[:n]).finish.max())
        return np.sort(fastest[:number])


SelectionOptions = Uniform | FedCS
SELECTIONS = (Uniform, FedCS)
