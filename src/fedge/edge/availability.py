"""Who can be asked in a round: devices that are charging, idle and connected at that moment."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta

from fedge.core.keys import generator
from fedge.core.schema import Options
from fedge.edge.tables import read_columns

_PURPOSE = "edge/availability"


class Constant(Options, tag="constant"):
    """Every client with the same probability in every round, whatever was before."""

    rate: Annotated[
        float, Meta(gt=0, le=1, description="probability that a client can be asked in a round; 1: all of them always")
    ] = 1.0

    def check(self, num_clients: int) -> None:
        """Any number of clients will do."""

    def available(self, num_clients: int, seed: int, round: int, sim_seconds: float) -> np.ndarray:
        """One truth value for each client."""
        if self.rate == 1:
            return np.ones(num_clients, bool)
        return generator(seed, _PURPOSE, round=round).random(num_clients) < self.rate


class Diurnal(Options, tag="diurnal"):
    """A probability that rises and falls with the simulated time of day: mean + amplitude * sin(2 pi t / period)."""

    mean: Annotated[float, Meta(gt=0, le=1, description="probability that a client can be asked, over a day")] = 0.5
    amplitude: Annotated[float, Meta(ge=0, le=0.5, description="how far it goes above and below the mean")] = 0.4
    period_s: Annotated[float, Meta(gt=0, description="length of a day in simulated seconds")] = 86_400.0
    spread: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="share of a day over which the clients' days begin, each at random: "
            "1 around the globe, 0 all at the same time",
        ),
    ] = 1.0

    def __post_init__(self) -> None:
        if self.amplitude > min(self.mean, 1 - self.mean) + 1e-12:
            raise ValueError(
                f"mean - amplitude and mean + amplitude must be from 0 to 1, got {self.mean:g} and {self.amplitude:g}"
            )

    def check(self, num_clients: int) -> None:
        """Any number of clients will do."""

    def available(self, num_clients: int, seed: int, round: int, sim_seconds: float) -> np.ndarray:
        """One truth value for each client."""
        phase = self.spread * generator(seed, f"{_PURPOSE}/phase").random(num_clients)
        rate = self.mean + self.amplitude * np.sin(2 * np.pi * (sim_seconds / self.period_s + phase))
        return np.asarray(generator(seed, _PURPOSE, round=round).random(num_clients) < rate)


class AvailabilityTrace(Options, tag="trace"):
    """As a file says: CSV with the columns client, start, end, one row for each time that a client can be asked.

    Times are simulated seconds, from start up to but not including end; those of a client may overlap. A client that
    the file does not name can never be asked.
    """

    file: Annotated[
        str,
        Meta(
            description="CSV file with the columns client, start, end (simulated seconds); "
            "a client without a row can never be asked"
        ),
    ]
    repeat_s: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="simulated seconds after which the trace begins again, as it had done before; else it ends"),
    ] = None

    def check(self, num_clients: int) -> None:
        """Refuse a file that cannot be read, or that speaks of clients or times that cannot be."""
        _read_intervals.cache_clear()  # a new run reads what the file says now
        _read_intervals(self.file, num_clients)

    def available(self, num_clients: int, seed: int, round: int, sim_seconds: float) -> np.ndarray:
        """One truth value for each client."""
        clients, start, length = _read_intervals(self.file, num_clients)
        since = sim_seconds - start
        if self.repeat_s is not None:
            since = np.mod(since, self.repeat_s)  # a time that goes over the end of the period goes on at its beginning
        found = np.zeros(num_clients, dtype=bool)
        found[clients[(since >= 0) & (since < length)]] = True
        return found


Availability = Constant | Diurnal | AvailabilityTrace


class _Intervals(NamedTuple):
    clients: np.ndarray
    start_s: np.ndarray
    length_s: np.ndarray


@lru_cache(maxsize=4)
def _read_intervals(file: str, num_clients: int) -> _Intervals:
    """Kept, because every round asks."""
    table = read_columns(file, ("client", "start", "end"))
    start, end = table.values["start"], table.values["end"]
    table.refuse(end <= start, "end", "after start")
    return _Intervals(table.whole("client", num_clients), start, end - start)
