"""Simulated time and energy of an exchange: the interface of all clocks, and the clock with fixed links."""

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
    """The clients' cells and positions, one entry per client."""

    cells: np.ndarray
    positions: np.ndarray  # [n, 2], metres from the station of their cell


class Participants(NamedTuple):
    """The clients of one exchange and their costs; arrays are in the order of `ids`."""

    ids: np.ndarray
    places: Places
    costs: Costs
    slowness: np.ndarray  # factor on the compute time of their devices
    round: int
    exchange: int  # its index in the round, from 0
    guess: bool = False  # a prediction: means instead of random draws


class Clock(Protocol):
    """Locates the clients of one run and times their exchanges. It owns the run's tables and random draws."""

    def place(self) -> Places:
        """Return the clients' places at the start."""

    def move(self, places: Places, rates: np.ndarray, round: int, sim_seconds: float) -> Places:
        """Return the clients' places after a round. `rates` are mobility rates per device, NaN where not set."""

    def phases(self, participants: Participants) -> Phases:
        """Return the seconds that each phase of an exchange takes each client."""


class Device(Options, tag=False, kw_only=True):
    """A device class."""

    share: Annotated[float, Meta(gt=0, le=1, description="share of all clients; the shares of all classes add up to 1")]
    compute_scale: Annotated[float, Meta(gt=0, description="factor on the compute time")] = 1.0
    mobility_rate: Annotated[Chance | None, Meta(description="mobility rate of this class, if clients can move")] = None


class ClockOptions(Options, tag_field="clock"):
    """Options that all simulated clocks share."""

    deadline_s: Annotated[
        Positive | None, Meta(description="time limit of an exchange in seconds; later uploads are discarded")
    ] = None
    availability: Annotated[Availability, Meta(description="which clients are available")] = ConstantAvailability()
    dropout: Annotated[
        Chance, Meta(description="probability that an asked client drops out before anything is sent")
    ] = 0.0
    devices: Annotated[
        list[Device], Meta(description="device classes, assigned to clients at random; none: all devices are alike")
    ] = field(default_factory=list)
    max_void_rounds: Annotated[
        int, Meta(ge=1, description="end the run after this many consecutive rounds without any answer")
    ] = 10
    retry_s: Annotated[Positive, Meta(description="duration of a void round in seconds if there is no deadline")] = 60.0
    payload_bits: Annotated[
        Positive | None,
        Meta(
            description="size that the clock assumes for every message and every merged state; "
            "records keep the real bytes (default: the real size)"
        ),
    ] = None
    client_power_w: Annotated[Positive, Meta(description="transmit power of a client")] = channel.CLIENT_POWER_W
    compute_power_w: Annotated[Positive, Meta(description="power of a client while it computes")] = 5.0
    record: Annotated[
        bool, Meta(description="write a timeline of all clients to edge.jsonl, for charts", extra=NO_EFFECT)
    ] = False

    def __post_init__(self) -> None:
        total = sum(device.share for device in self.devices)
        if self.devices and abs(total - 1) > 1e-6:
            raise ValueError(f"devices: expected shares that add up to 1, got {total:g}")

    @property
    def cell_grid(self) -> Grid:
        """The grid of cells; a single cell without cells."""
        return Grid(1, 1)

    @property
    def norms(self) -> Norms:
        """The norms that measure the distance between cells."""
        return "l2"

    @property
    def cells_equal(self) -> bool:
        """Whether all cells have the same weight in a merge, whatever their number of participants."""
        return False

    @property
    def divided(self) -> bool:
        """Whether there are cells, each with its own server."""
        return False

    def check(self, num_clients: int) -> None:
        """Raise a ConfigError, or a DataError for a file, if the options do not fit this number of clients."""
        self.availability.build(num_clients, seed=0)

    def build(self, num_clients: int, num_params: int, seed: int) -> Clock:
        """Return the clock of one run."""
        raise TypeError(f"{type(self).__name__} does not define a clock")

    @property
    def period(self) -> int:
        """Rounds from one merge of the cells to the next."""
        return 1

    def merges(self, round: int) -> bool:
        """Return whether the cells merge after this round."""
        return round % self.period == 0

    def waits(self, round: int) -> bool:
        """Return whether cells wait for each other at the end of this round."""
        return True

    def backhaul_s(self, num_bytes: float) -> float:
        """Return the seconds that merging states of this size takes."""
        return 0.0

    def joules(self, phases: Phases) -> np.ndarray:
        """Return the energy that each client used, in joules."""
        return self.client_power_w * phases.up + self.compute_power_w * phases.compute

    def deal_devices(self, num_clients: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Assign device classes to clients and return (compute_scale, mobility_rate or NaN) of each client."""
        devices = self.devices or [Device(share=1.0)]
        ends = np.rint(np.cumsum([device.share for device in devices]) * num_clients).astype(int)
        kinds = np.searchsorted(ends, np.arange(num_clients), side="right").clip(max=len(devices) - 1)
        kinds = generator(seed, "devices").permutation(kinds)
        scales = np.array([device.compute_scale for device in devices])
        rates = np.array([np.nan if device.mobility_rate is None else device.mobility_rate for device in devices])
        return scales[kinds], rates[kinds]


class FixedClock(ClockOptions, tag="fixed"):
    """Links of fixed rate and a fixed time per minibatch: |down|/D + minibatches * beta + |up|/U seconds.

    An exchange takes as long as its slowest client. Defaults describe a Raspberry Pi 3B+ with a small model.
    """

    down_mbps: Annotated[
        Quantity, Meta(description="download rate in Mbit/s: a number, one per client, or a distribution")
    ] = 20.0
    up_mbps: Annotated[Quantity, Meta(description="upload rate in Mbit/s, likewise")] = 5.0
    seconds_per_step: Annotated[Quantity, Meta(description="compute time of one minibatch in seconds, likewise")] = (
        0.017
    )

    def check(self, num_clients: int) -> None:
        super().check(num_clients)
        check_quantities(self, ("down_mbps", "up_mbps", "seconds_per_step"), num_clients)
        if any(device.mobility_rate is not None for device in self.devices):
            raise ConfigError('edge.devices: mobility_rate needs cells to move between: set edge.clock = "cells"')

    def build(self, num_clients: int, num_params: int, seed: int) -> Clock:
        return FixedLinks(self, num_clients, seed)


class FixedLinks:
    """The clock of a run with links of fixed rate. All clients stay in one cell."""

    def __init__(self, options: FixedClock, num_clients: int, seed: int) -> None:
        self._num_clients = num_clients
        self._down_mbps = ClientValues(options.down_mbps, "edge/down_mbps", num_clients, seed)
        self._up_mbps = ClientValues(options.up_mbps, "edge/up_mbps", num_clients, seed)
        self._seconds_per_step = ClientValues(options.seconds_per_step, "edge/seconds_per_step", num_clients, seed)

    def place(self) -> Places:
        return Places(np.zeros(self._num_clients, np.int64), np.zeros((self._num_clients, 2)))

    def move(self, places: Places, rates: np.ndarray, round: int, sim_seconds: float) -> Places:
        return places

    def phases(self, participants: Participants) -> Phases:
        down = participants.costs.bytes_down * 8e-6 / self._down_mbps.of(participants.ids)
        compute = participants.costs.batches * self._seconds_per_step.of(participants.ids) * participants.slowness
        up = participants.costs.bytes_up * 8e-6 / self._up_mbps.of(participants.ids)
        return Phases(down, compute, up, down + compute + up)


def check_quantities(options: ClockOptions, names: Sequence[str], num_clients: int) -> None:
    """Raise a ConfigError for lists whose length is not the number of clients."""
    problems = [
        f"edge.{name}: expected one value for each of {num_clients} clients, got {len(value)}"
        for name in names
        if isinstance(value := getattr(options, name), list) and len(value) != num_clients
    ]
    if problems:
        raise ConfigError(*problems)
