"""How long an exchange takes at the edge and how much energy it uses: what all clocks share, and fixed links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, Protocol

import numpy as np
from msgspec import Meta, field

from fedge.core.algorithm import Costs, Phases
from fedge.core.cell_grid import Grid
from fedge.core.effect import NO_EFFECT
from fedge.core.errors import ConfigError
from fedge.core.keys import generator
from fedge.core.schema import Options
from fedge.edge import channel
from fedge.edge.availability import Availability, ConstantAvailability
from fedge.edge.client_values import ClientValues, Positive, Quantity

Chance = Annotated[float, Meta(ge=0, le=1)]
Norms = Literal["l2", "l1_l2"]


class Places(NamedTuple):
    """Where clients are, one value for each."""

    cells: np.ndarray
    positions: np.ndarray  # [n, 2], metres from the station of their cell


class Participants(NamedTuple):
    """Clients of one exchange, and what they have to do; arrays in the order of `ids`."""

    ids: np.ndarray
    places: Places
    costs: Costs
    slowness: np.ndarray  # how many times longer than others their devices compute
    round: int
    exchange: int  # of the round, from 0
    guess: bool = False  # before it happens: the mean of what is random


class Clock(Protocol):
    """Where the clients of one run are and how long exchanges take them; it owns the run's tables and draws."""

    def place(self) -> Places:
        """Return where clients are at first."""

    def move(self, places: Places, rates: np.ndarray, round: int, sim_seconds: float) -> Places:
        """Return where they are after a round; `rates` are those of their devices, NaN where these have none."""

    def phases(self, crew: Participants) -> Phases:
        """Return how long an exchange takes its clients."""


class Device(Options, tag=False, kw_only=True):
    """A class of devices."""

    share: Annotated[float, Meta(gt=0, le=1, description="of all clients; the shares of all classes add up to 1")]
    compute_scale: Annotated[float, Meta(gt=0, description="how many times longer it computes")] = 1.0
    mobility_rate: Annotated[Chance | None, Meta(description="its own, if clients can move")] = None


class ClockOptions(Options, tag_field="clock"):
    """What simulated time is counted by."""

    deadline_s: Annotated[
        Positive | None, Meta(description="seconds of an exchange; what arrives later is missing and was for nothing")
    ] = None
    availability: Annotated[Availability, Meta(description="which clients can be asked")] = ConstantAvailability()
    dropout: Annotated[
        Chance, Meta(description="chance that a client that was asked is gone before anything is sent")
    ] = 0.0
    devices: Annotated[
        list[Device], Meta(description="classes of devices, dealt to clients at random; none: all are alike")
    ] = field(default_factory=list)
    max_void_rounds: Annotated[
        int, Meta(ge=1, description="rounds one after another in which nobody answered that end the run")
    ] = 10
    retry_s: Annotated[Positive, Meta(description="seconds that a void round takes if there is no deadline")] = 60.0
    payload_bits: Annotated[
        Positive | None,
        Meta(
            description="size of every message, and of a state that cells merge, by which the clock counts; "
            "records keep the real bytes (the real size)"
        ),
    ] = None
    client_power_w: Annotated[Positive, Meta(description="of a client that sends")] = channel.CLIENT_POWER_W
    compute_power_w: Annotated[Positive, Meta(description="of a client that computes")] = 5.0
    record: Annotated[
        bool, Meta(description="write who did what when into edge.jsonl, for pictures", extra=NO_EFFECT)
    ] = False

    def __post_init__(self) -> None:
        total = sum(device.share for device in self.devices)
        if self.devices and abs(total - 1) > 1e-6:
            raise ValueError(f"devices: expected shares that add up to 1, got {total:g}")

    @property
    def cell_grid(self) -> Grid:
        """The grid of cells; without any, all clients are in one place."""
        return Grid(1, 1)

    @property
    def norms(self) -> Norms:
        """How the distance between cells is measured."""
        return "l2"

    @property
    def cells_equal(self) -> bool:
        """Whether all cells have the same weight in a merge, however many clients took part in each."""
        return False

    @property
    def divided(self) -> bool:
        """Whether there are cells, each with a server of its own."""
        return False

    def check(self, num_clients: int) -> None:
        """Raise a ConfigError, or a DataError for a file, if the options do not fit this number of clients."""
        self.availability.build(num_clients, seed=0)

    def build(self, num_clients: int, num_params: int, seed: int) -> Clock:
        """Return the clock of one run."""
        raise TypeError(f"{type(self).__name__} does not say how long things take")

    @property
    def period(self) -> int:
        """Rounds from one agreement of the cells' servers to the next."""
        return 1

    def merges(self, round: int) -> bool:
        """Whether they agree after this round."""
        return round % self.period == 0

    def waits(self, round: int) -> bool:
        """Whether cells wait for each other at the end of this round."""
        return True

    def backhaul_s(self, num_bytes: float) -> float:
        """How long it takes to merge states of that size."""
        return 0.0

    def joules(self, phases: Phases) -> np.ndarray:
        """The energy that each client used."""
        return self.client_power_w * phases.up + self.compute_power_w * phases.compute

    def deal_devices(self, num_clients: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """(compute_scale, mobility_rate or NaN) of each client."""
        devices = self.devices or [Device(share=1.0)]
        ends = np.rint(np.cumsum([device.share for device in devices]) * num_clients).astype(int)
        kinds = np.searchsorted(ends, np.arange(num_clients), side="right").clip(max=len(devices) - 1)
        kinds = generator(seed, "devices").permutation(kinds)
        scales = np.array([device.compute_scale for device in devices])
        rates = np.array([np.nan if device.mobility_rate is None else device.mobility_rate for device in devices])
        return scales[kinds], rates[kinds]


class FixedClock(ClockOptions, tag="fixed"):
    """Links of fixed rate and a fixed time for a minibatch: |down|/D + minibatches * beta + |up|/U seconds.

    An exchange is as slow as its slowest client. Defaults are those of a Raspberry Pi 3B+ with a small network.
    """

    down_mbps: Annotated[
        Quantity, Meta(description="download rate in Mbit/s: a number, one per client, or a distribution")
    ] = 20.0
    up_mbps: Annotated[Quantity, Meta(description="upload rate in Mbit/s, likewise")] = 5.0
    seconds_per_step: Annotated[Quantity, Meta(description="seconds for one minibatch, likewise")] = 0.017

    def check(self, num_clients: int) -> None:
        super().check(num_clients)
        check_quantities(self, ("down_mbps", "up_mbps", "seconds_per_step"), num_clients)
        if any(device.mobility_rate is not None for device in self.devices):
            raise ConfigError('edge.devices: mobility_rate needs cells to move between: set edge.clock = "cells"')

    def build(self, num_clients: int, num_params: int, seed: int) -> Clock:
        return FixedLinks(self, num_clients, seed)


class FixedLinks:
    """The clock of a run with links of fixed rate. All clients are in one place, and stay there."""

    def __init__(self, options: FixedClock, num_clients: int, seed: int) -> None:
        self._num_clients = num_clients
        self._down_mbps = ClientValues(options.down_mbps, "edge/down_mbps", num_clients, seed)
        self._up_mbps = ClientValues(options.up_mbps, "edge/up_mbps", num_clients, seed)
        self._seconds_per_step = ClientValues(options.seconds_per_step, "edge/seconds_per_step", num_clients, seed)

    def place(self) -> Places:
        return Places(np.zeros(self._num_clients, np.int64), np.zeros((self._num_clients, 2)))

    def move(self, places: Places, rates: np.ndarray, round: int, sim_seconds: float) -> Places:
        return places

    def phases(self, crew: Participants) -> Phases:
        down = crew.costs.bytes_down * 8e-6 / self._down_mbps.of(crew.ids)
        compute = crew.costs.batches * self._seconds_per_step.of(crew.ids) * crew.slowness
        up = crew.costs.bytes_up * 8e-6 / self._up_mbps.of(crew.ids)
        return Phases(down, compute, up, down + compute + up)


def check_quantities(options: ClockOptions, names: Sequence[str], num_clients: int) -> None:
    """Refuse lists that are not one value for each client."""
    problems = [
        f"edge.{name}: expected one value for each of {num_clients} clients, got {len(value)}"
        for name in names
        if isinstance(value := getattr(options, name), list) and len(value) != num_clients
    ]
    if problems:
        raise ConfigError(*problems)
