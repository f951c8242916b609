"""Client availability: which devices are charging, idle and connected in a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import numpy as np
from msgspec import Meta

from fedge.core.keys import generator
from fedge.core.schema import Options
from fedge.edge.trace_files import read_columns

_PURPOSE = "edge/availability"

Available = Callable[[int, float], np.ndarray]
"""(round, simulated seconds) -> one boolean per client."""


class ConstantAvailability(Options, tag="constant"):
    """Every client is available with the same probability, independently in every round."""

    rate: Annotated[
        float, Meta(gt=0, le=1, description="probability that a client is available in a round; 1: always")
    ] = 1.0

    def build(self, num_clients: int, seed: int) -> Available:
        """Return the function that tells which clients are available."""
        if self.rate == 1:
            return lambda round, sim_seconds: np.ones(num_clients, bool)
        return lambda round, sim_seconds: generator(seed, _PURPOSE, round=round).random(num_clients) < self.rate


class DiurnalAvailability(Options, tag="diurnal"):
    """A probability that varies with the simulated time of day: mean + amplitude * sin(2 pi t / period)."""

    mean: Annotated[float, Meta(gt=0, le=1, description="mean probability over a day that a client is available")] = 0.5
    amplitude: Annotated[float, Meta(ge=0, le=0.5, description="largest deviation from the mean")] = 0.4
    period_s: Annotated[float, Meta(gt=0, description="length of a day in simulated seconds")] = 86_400.0
    spread: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="share of a day over which the starts of the clients' days are spread at random: "
            "1 for clients around the globe, 0 if all days start together",
        ),
    ] = 1.0

    def __post_init__(self) -> None:
        if self.amplitude > min(self.mean, 1 - self.mean) + 1e-12:
            raise ValueError(
                "mean - amplitude and mean + amplitude must be from 0 to 1, "
                f"got mean {self.mean:g} and amplitude {self.amplitude:g}"
            )

    def build(self, num_clients: int, seed: int) -> Available:
        """Return the function that tells which clients are available."""
        phase = self.spread * generator(seed, f"{_PURPOSE}/phase").random(num_clients)

        def available(round: int, sim_seconds: float) -> np.ndarray:
            rate = self.mean + self.amplitude * np.sin(2 * np.pi * (sim_seconds / self.period_s + phase))
            return np.asarray(generator(seed, _PURPOSE, round=round).random(num_clients) < rate)

        return available


class AvailabilityTrace(Options, tag="trace"):
    """Availability read from a CSV file with the columns client, start, end: one row per interval of a client.

    Times are simulated seconds; start is included, end is not. Intervals of a client may overlap. A client without a
    row is never available.
    """

    file: Annotated[
        str,
        Meta(
            description="CSV file with the columns client, start, end (simulated seconds); "
            "a client without a row is never available"
        ),
    ]
    repeat_s: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="period in simulated seconds after which the trace repeats; without it, the trace ends"),
    ] = None

    def build(self, num_clients: int, seed: int) -> Available:
        """Read the file and return the function that tells which clients are available.

        Raises DataError if the file cannot be read, or contains invalid clients or times.
        """
        table = read_columns(self.file, ("client", "start", "end"))
        start, end = table.values["start"], table.values["end"]
        table.refuse(end <= start, "end", "after start")
        clients, length = table.whole("client", num_clients), end - start

        def available(round: int, sim_seconds: float) -> np.ndarray:
            since = sim_seconds - start
            if self.repeat_s is not None:
                since = np.mod(since, self.repeat_s)  # an interval beyond the end of the period wraps around
            found = np.zeros(num_clients, dtype=bool)
            found[clients[(since >= 0) & (since < length)]] = True
            return found

        return available


Availability = ConstantAvailability | DiurnalAvailability | AvailabilityTrace
