"""Radio cells: clients share the channel of their cell and move between cells."""

from __future__ import annotations

from functools import cached_property, lru_cache, partial
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from fedge.core.algorithm import Phases
from fedge.core.cell_grid import CellCount, Grid, Occupancy, Shape, check_occupancy, occupancy
from fedge.core.errors import ConfigError
from fedge.core.keys import generator
from fedge.edge import channel
from fedge.edge.client_values import ClientValues, Normal, Positive, Quantity
from fedge.edge.clock import Chance, Clock, ClockOptions, Norms, Participants, Places, check_quantities
from fedge.edge.mobility import MobilityTrace, destinations, move
from fedge.edge.uplink import finish_times


class CellClock(ClockOptions, tag="cells"):
    """Cells on a grid, each with its own server and channel; the servers merge every `global_every` rounds.

    A base station broadcasts to its clients at the rate of the worst channel. Clients upload one at a time: among those
    that have finished computing, the one with the shortest remaining transmission sends.
    """

    cells: Annotated[CellCount | None, Meta(description="number of cells, on a nearly square grid (default: 25)")] = (
        None
    )
    grid: Annotated[Shape | None, Meta(description="rows and columns, instead of cells")] = None
    clients_per_cell: Annotated[
        Occupancy | None, Meta(description="clients in each cell at the start (default: balanced)")
    ] = None
    global_every: Annotated[int, Meta(ge=1, description="rounds from one merge of the cells to the next")] = 1
    merge_weight: Annotated[
        Literal["participants", "equal"],
        Meta(description="weight of a cell in a merge: its number of participants, or 1 if it has any"),
    ] = "participants"
    mobility_rate: Annotated[Chance, Meta(description="probability that a client moves after a round")] = 0.0
    move_to: Annotated[
        Literal["anywhere", "neighbours"],
        Meta(description="any other cell, weighted by 1/distance, or one of the up to eight neighbouring cells"),
    ] = "anywhere"
    trace: Annotated[
        str | None, Meta(description="CSV file client,time,cell with the clients' cells, instead of random moves")
    ] = None
    trace_time: Annotated[
        Literal["seconds", "rounds"], Meta(description="unit of time in the trace: simulated seconds or rounds")
    ] = "seconds"
    sync: Annotated[
        Literal["round", "merge"],
        Meta(description="when cells wait for each other: after every round, or at merges only"),
    ] = "round"
    bandwidth_hz: Annotated[Positive, Meta(description="bandwidth of a cell")] = channel.BANDWIDTH_HZ
    cell_power_w: Annotated[Positive, Meta(description="transmit power of a base station")] = channel.CELL_POWER_W
    noise_w_per_hz: Annotated[Positive, Meta(description="noise power density")] = channel.NOISE_W_PER_HZ
    radius_m: Annotated[Positive | list[Positive], Meta(description="radius of a cell: one value, or one per cell")] = (
        channel.RADIUS_M
    )
    redraw: Annotated[
        bool, Meta(description="draw a new position for every transmission, not only when a client changes its cell")
    ] = False
    seconds_per_sample_param: Annotated[
        Quantity, Meta(description="compute time in seconds per sample and model parameter")
    ] = Normal(mean=5e-9, std=1e-9)
    backhaul_mbps: Annotated[
        Positive | None,
        Meta(description="rate between each base station and the central server, each way (default: no limit)"),
    ] = None
    divergence: Annotated[
        Norms, Meta(description="norms of weight_divergence: L2 over L2, or L1 of the difference over L2")
    ] = "l2"

    def __post_init__(self) -> None:
        super().__post_init__()
        num_cells = self.cell_grid.num_cells
        if isinstance(self.radius_m, list) and len(self.radius_m) != num_cells:
            raise ValueError(
                f"radius_m: expected one value, or one for each of {num_cells} cells, got {len(self.radius_m)}"
            )
        if self.trace is not None and self.mobility_rate:
            raise ValueError("trace and mobility_rate exclude each other; give one of them")
        if self.trace is not None and any(device.mobility_rate is not None for device in self.devices):
            raise ValueError("trace and mobility_rate of devices exclude each other; give one of them")

    @property
    def cell_grid(self) -> Grid:
        return Grid.chosen(self.cells, self.grid)

    @property
    def norms(self) -> Norms:
        return self.divergence

    @property
    def cells_equal(self) -> bool:
        return self.merge_weight == "equal"

    @property
    def divided(self) -> bool:
        return True

    def check(self, num_clients: int) -> None:
        super().check(num_clients)
        check_quantities(self, ("seconds_per_sample_param",), num_clients)
        num_cells = self.cell_grid.num_cells
        if num_cells > num_clients:
            raise ConfigError(
                f"edge.cells: expected at most one cell per client ({num_clients}), got {num_cells}; "
                "lower edge.cells or raise data.clients"
            )
        self.occupancy(num_clients)
        if self.trace is not None:
            MobilityTrace.read(self.trace, num_clients, num_cells)

    def build(self, num_clients: int, num_params: int, seed: int) -> Clock:
        return CellRadio(self, num_clients, num_params, seed)

    def occupancy(self, num_clients: int) -> np.ndarray:
        """Return the number of clients in each cell at the start. Raises ConfigError if they do not fit."""
        num_cells = self.cell_grid.num_cells
        if self.clients_per_cell is None:
            return occupancy(num_clients, num_cells)
        return check_occupancy(self.clients_per_cell, num_clients, num_cells, "edge.clients_per_cell")

    @property
    def period(self) -> int:
        return self.global_every

    def waits(self, round: int) -> bool:
        return self.sync == "round" or self.merges(round)

    def backhaul_s(self, num_bytes: float) -> float:
        return 0.0 if self.backhaul_mbps is None else 2 * num_bytes * 8e-6 / self.backhaul_mbps


class CellRadio:
    """The clock of a run with cells. It owns the mobility trace and the random draws of the current exchanges."""

    def __init__(self, options: CellClock, num_clients: int, num_params: int, seed: int) -> None:
        self._options, self._num_clients, self._num_params, self._seed = options, num_clients, num_params, seed
        self._grid = options.cell_grid
        self._trace: MobilityTrace | None = None
        if options.trace is not None:
            self._trace = MobilityTrace.read(options.trace, num_clients, self._grid.num_cells)
        self._seconds_per_sample_param = ClientValues(
            options.seconds_per_sample_param, "edge/seconds_per_sample_param", num_clients, seed
        )
        # All cells use the draws of the same exchange, one cell after another.
        self._fading = lru_cache(maxsize=4)(partial(_draw_fading, num_clients, seed))
        self._unit_positions = lru_cache(maxsize=4)(partial(_draw_unit_positions, num_clients, seed))

    def place(self) -> Places:
        cells = np.repeat(np.arange(self._grid.num_cells), self._options.occupancy(self._num_clients))
        if self._trace is not None:
            cells = self._trace.cells_at(0.0, cells)
        return Places(cells, self._draw_positions(cells))

    def move(self, places: Places, rates: np.ndarray, round: int, sim_seconds: float) -> Places:
        options = self._options
        if self._trace is not None:
            cells = self._trace.cells_at(round if options.trace_time == "rounds" else sim_seconds, places.cells)
        else:
            rates = np.where(np.isnan(rates), options.mobility_rate, rates)
            cells = move(places.cells, rates, self._destinations, generator(self._seed, "edge/mobility", round=round))
        went = (cells != places.cells)[:, None]
        return Places(cells, np.where(went, self._draw_positions(cells, round), places.positions))

    def phases(self, participants: Participants) -> Phases:
        cells, costs = participants.places.cells, participants.costs
        down = 8 * costs.bytes_down / self._rate_bps(participants, "down", self._options.cell_power_w)
        slowest = np.zeros(self._grid.num_cells)
        np.maximum.at(slowest, cells, down)
        down = slowest[cells]
        seconds = self._seconds_per_sample_param.of(participants.ids)
        compute = seconds * participants.slowness * costs.samples * self._num_params
        up = 8 * costs.bytes_up / self._rate_bps(participants, "up", self._options.client_power_w)
        return Phases(down, compute, up, finish_times(down + compute, up, cells))

    @cached_property
    def _destinations(self) -> np.ndarray:
        return destinations(self._grid, self._options.move_to)

    def _rate_bps(self, participants: Participants, phase: str, power_w: float) -> np.ndarray:
        options, positions = self._options, participants.places.positions
        if options.redraw and not participants.guess:
            at = self._unit_positions(f"edge/{phase}/positions", participants.round, participants.exchange)
            positions = at[participants.ids] * self._radius_m(participants.places.cells)[:, None]
        gain = channel.mean_gain(channel.distance_m(positions))
        if not participants.guess:
            gain = gain * self._fading(phase, participants.round, participants.exchange)[participants.ids]
        return channel.rate_bps(options.bandwidth_hz, power_w, gain, options.noise_w_per_hz)

    def _draw_positions(self, cells: np.ndarray, round: int = 0) -> np.ndarray:
        unit = _draw_unit_positions(self._num_clients, self._seed, "edge/positions", round)
        return np.asarray(unit * self._radius_m(cells)[:, None])

    def _radius_m(self, cells: np.ndarray) -> np.ndarray:
        return np.asarray(np.broadcast_to(self._options.radius_m, self._grid.num_cells)[cells])


# Each draw covers all clients, so that a client's value does not depend on which others are asked.


def _draw_fading(num_clients: int, seed: int, phase: str, round: int, exchange: int) -> np.ndarray:
    rng = generator(seed, f"edge/{phase}/fading", round=round, step=exchange)
    return channel.draw_fading(num_clients, rng)


def _draw_unit_positions(num_clients: int, seed: int, purpose: str, round: int = 0, exchange: int = 0) -> np.ndarray:
    return channel.draw_positions(num_clients, 1.0, generator(seed, purpose, round=round, step=exchange))
