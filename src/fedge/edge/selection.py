"""Who is asked in a round."""

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
"""How long an exchange would take these clients if they and nobody else were asked."""


class Uniform(Options, tag="uniform"):
    """Every client with the same chance, none twice in a round."""

    part = Part("selection", "fedge.selections")
    fraction: Annotated[Share | None, Meta(description="share of all clients asked in a round (0.1 if no count)")] = (
        None
    )
    count: Annotated[Count | None, Meta(description="clients asked in a round; with cells, in each of them")] = None
    rounding: Annotated[
        Literal["up", "down"], Meta(description="of the fraction's number of clients, which is at least 1")
    ] = "up"

    def __post_init__(self) -> None:
        if self.fraction is not None and self.count is not None:
            raise ValueError("fraction and count exclude each other; give one of them")

    @property
    def needs_deadline(self) -> bool:
        """Whether it makes sense only with one."""
        return False

    def number(self, num_clients: int) -> int:
        """How many of all clients are asked; of few, all there are."""
        return self._rounded(num_clients) if self.count is None else min(self.count, num_clients)

    def check(self, num_clients: int) -> None:
        """Raise a ConfigError if there are fewer clients than are to be asked."""
        if self.count is not None and self.count > num_clients:
            raise ConfigError(
                f"selection.count: expected at most the {num_clients} clients of data.clients, got {self.count}"
            )

    def number_in_cell(self, num_clients: int) -> int:
        """How many of so many clients of a cell are asked; of few, all there are."""
        if self.count is None:
            return min(self._rounded(num_clients), num_clients)  # of none, none
        return min(self.count, num_clients)

    def share(self, num_clients: int, num_cells: int | None) -> float:
        """Which share of all clients that is meant to be, in so many cells; it does not hang on where clients are."""
        if num_cells is None:
            return self.number(num_clients) / num_clients
        return self.fraction or 0.1 if self.count is None else min(1.0, self.count * num_cells / num_clients)

    def select(self, able: np.ndarray, number: int, seed: int, round: int, cell: int) -> np.ndarray:
        """Up to so many of these clients, in client order."""
        rng = generator(seed, "selection", cell, round)
        return np.sort(rng.choice(able, min(number, len(able)), replace=False))

    def fit(self, chosen: np.ndarray, deadline_s: float | None, predict: Predict) -> np.ndarray:
        """Those of the chosen that are asked indeed."""
        return chosen

    def _rounded(self, num_clients: int) -> int:
        """The fraction of clients as a whole number; a rounding error of 1e-9 does not count."""
        number = (self.fraction or 0.1) * num_clients
        return max(1, ceil(number - 1e-9) if self.rounding == "up" else floor(number + 1e-9))


class FedCS(Uniform, tag="fedcs"):
    """Client selection by time (FedCS, Nishio and Yonetani 2019): of the clients drawn, as many as fit the deadline.

    The fastest come first. Times are predicted from the mean channel, the algorithm's configured steps, and the sizes
    of messages in the last round; before the first, that of the model.
    """

    @property
    def needs_deadline(self) -> bool:
        return True

    def fit(self, chosen: np.ndarray, deadline_s: float | None, predict: Predict) -> np.ndarray:
        if deadline_s is None or not len(chosen):
            return chosen
        alone = predict(chosen)
        fastest = chosen[np.argsort(alone.down + alone.compute + alone.up, kind="stable")]
        # One more client never makes an exchange shorter, so that the number that fits can be bisected.
        number = bisect_right(range(1, len(fastest) + 1), deadline_s, key=lambda n: predict(fastest[:n]).finish.max())
        return np.sort(fastest[:number])


SelectionOptions = Uniform | FedCS
SELECTIONS = (Uniform, FedCS)
