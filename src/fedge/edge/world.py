"""The simulated world: clients' places, cohorts, deadlines and simulated time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch

from fedge.core.algorithm import Costs, Phases, Reply
from fedge.core.drive import Admission
from fedge.core.keys import generator
from fedge.core.layout import Tree
from fedge.core.world import Cohort, Spent, Timeline, answered, late_of, mean_seconds, workers
from fedge.edge.clock import ClockOptions, Participants, Places
from fedge.edge.selection import SelectionOptions

Amount = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Predict (minibatches, samples) that each of the given clients processes in a round."""


class SimulatedWorld:
    """Cells, clients and simulated time, advanced round by round. Without cells, all clients are in one."""

    clock: Literal["simulated", "measured"] = "simulated"

    def __init__(
        self,
        edge: ClockOptions,
        selection: SelectionOptions,
        num_clients: int,
        num_params: int,
        seed: int,
        amount: Amount,
        model_bytes: int,
    ) -> None:
        self._edge, self._selection, self._seed, self._amount = edge, selection, seed, amount
        self._num_clients = num_clients
        self._clock = edge.build(num_clients, num_params, seed)
        self._available = edge.availability.build(num_clients, seed)
        self._slowness, self._rates = edge.deal_devices(num_clients, seed)
        self.places = self._clock.place()
        self._seconds = np.zeros(edge.cell_grid.num_cells)  # since the start, per cell
        self._bytes = np.array([model_bytes, model_bytes], np.float64)  # down and up, mean per client in the last round
        self._admitted: dict[tuple[int, int], Timeline] = {}  # of the round in progress
        self._timelines: dict[tuple[int, int], Timeline] = {}  # of the last round

    @property
    def seconds(self) -> float:
        """Simulated seconds since the start of the run."""
        return float(self._seconds.max())

    def gather(self, round: int, everyone: bool = False) -> list[Cohort]:
        edge, selection, seed = self._edge, self._selection, self._seed
        able = self._available(round, self.seconds)
        found = []
        for cell, members in enumerate(self._members()):
            number = selection.number_in_cell(len(members)) if edge.divided else selection.number(len(members))
            there = members if able.all() else members[able[members]]
            chosen = there if everyone else selection.select(there, number, seed, round, cell)
            asked = selection.fit(chosen, edge.deadline_s, lambda ids: self._predict(ids, round))
            if len(asked):
                found.append(Cohort(cell, tuple(asked.tolist()), tuple(self._stay(asked, round).tolist())))
        return found

    def admit(self, round: int, cells: Sequence[int]) -> Admission | None:
        deadline = self._edge.deadline_s
        self._admitted = {}
        if deadline is None:
            return None
        numbers = [0] * len(cells)  # index of each cell's next exchange

        def decide(which: int, ids: tuple[int, ...], costs: Costs) -> np.ndarray:
            cell, number = cells[which], numbers[which]
            numbers[which] += 1
            clients = np.array(ids, np.int64)
            phases = self._phases(clients, costs, round, number)
            late = phases.finish > deadline
            self._admitted[cell, number] = Timeline(clients, phases, late)
            return np.asarray(~late)

        return decide

    def spend(self, round: int, cells: Sequence[int], replies: Sequence[Sequence[Reply]], state_bytes: int) -> Spent:
        before, edge = self.seconds, self._edge
        travels = state_bytes if edge.divided and edge.merges(round) else 0
        self._timelines = {
            (cell, number): self._timeline(round, cell, number, reply)
            for cell, exchanges in zip(cells, replies, strict=True)
            for number, reply in enumerate(answered(exchanges))
        }
        self._admitted = {}
        took = np.zeros(len(self._seconds))
        for (cell, _), timeline in self._timelines.items():
            took[cell] += self._length(timeline)
        if all(timeline.late.all() for timeline in self._timelines.values()):  # no client answered
            took[:] = edge.deadline_s or edge.retry_s
        if edge.waits(round):
            self._seconds[:] = (self._seconds + took).max() + edge.backhaul_s(float(self._on_air(travels)))
        else:
            self._seconds += took
        self._remember_bytes(replies)
        ids, joules = self._joules()
        times = self.seconds - before, *mean_seconds(self._timelines)
        return Spent(*times, ids, joules, bytes_backhaul=2 * len(self._seconds) * travels)

    def move(self, round: int) -> None:
        self.places = self._clock.move(self.places, self._rates, round, self.seconds)

    def describe(self, class_counts: np.ndarray | None) -> dict[str, Any]:
        grid, cells, timelines = self._edge.cell_grid, self.places.cells, self._timelines
        ids = np.unique(np.concatenate([np.zeros(0, np.int64), *(timeline.ids for timeline in timelines.values())]))
        busy, finish = np.zeros((3, len(ids))), np.zeros(len(ids))
        late = np.zeros(len(ids), bool)
        latency: list[float | None] = [None] * grid.num_cells
        for (cell, _), timeline in timelines.items():
            rows = np.searchsorted(ids, timeline.ids)
            start = latency[cell] or 0.0
            busy[:, rows] += timeline.phases[:3]
            finish[rows] = start + timeline.phases.finish
            late[rows] |= timeline.late
            latency[cell] = start + self._length(timeline)
        return {
            "rows": grid.rows,
            "cols": grid.cols,
            "occupancy": np.bincount(cells, minlength=grid.num_cells).tolist(),
            "clients": ids.tolist(),
            "cell": cells[ids].tolist(),
            **dict(zip(("down_s", "compute_s", "up_s"), busy.tolist(), strict=True)),
            "wait_s": np.maximum(finish - busy.sum(0), 0.0).tolist(),
            "finish_s": finish.tolist(),
            "late": late.tolist(),
            "latency": latency,
            "deadline_s": self._edge.deadline_s,
            **({} if class_counts is None else {"classes": self._by_cell(class_counts).tolist()}),
        }

    def state(self) -> Tree:
        found = {"seconds": self._seconds, "bytes": self._bytes}
        if self._edge.divided:
            found |= self.places._asdict()
        return {name: torch.from_numpy(value.copy()) for name, value in found.items()}

    def restore(self, state: Tree) -> None:
        found = {name: value.numpy().copy() for name, value in state.items()}
        if self._edge.divided:
            self.places = Places(found["cells"], found["positions"])
        self._seconds, self._bytes = found["seconds"], found["bytes"]

    def _members(self) -> list[np.ndarray]:
        """Return the clients of each cell."""
        if len(self._seconds) == 1:
            return [np.arange(self._num_clients)]
        counts = np.bincount(self.places.cells, minlength=len(self._seconds))
        return np.split(np.argsort(self.places.cells, kind="stable"), np.cumsum(counts)[:-1])

    def _stay(self, asked: np.ndarray, round: int) -> np.ndarray:
        """Return the asked clients that do not drop out."""
        if not self._edge.dropout:
            return asked
        chances = generator(self._seed, "edge/dropout", round=round).random(self._num_clients)
        return np.asarray(asked[chances[asked] >= self._edge.dropout])

    def _by_cell(self, counts: np.ndarray) -> np.ndarray:
        """Return the sum of the clients' counts `[num_clients, n]` in each cell."""
        found = np.zeros((len(self._seconds), counts.shape[1]), np.int64)
        np.add.at(found, self.places.cells, counts)
        return found

    def _phases(self, ids: np.ndarray, costs: Costs, round: int, exchange: int, guess: bool = False) -> Phases:
        places = Places(self.places.cells[ids], self.places.positions[ids])
        costs = costs._replace(bytes_down=self._on_air(costs.bytes_down), bytes_up=self._on_air(costs.bytes_up))
        return self._clock.phases(Participants(ids, places, costs, self._slowness[ids], round, exchange, guess))

    def _on_air(self, num_bytes: np.ndarray | int) -> np.ndarray:
        """Return the message sizes in bytes that the clock uses in place of these."""
        payload_bits = self._edge.payload_bits
        return np.asarray(num_bytes if payload_bits is None else np.where(num_bytes, payload_bits / 8, 0.0))

    def _predict(self, ids: np.ndarray, round: int) -> Phases:
        batches, samples = self._amount(ids)
        none = np.zeros(len(ids), np.int64)
        down, up = (np.full(len(ids), size) for size in self._bytes)
        costs = Costs(bytes_down=down, bytes_up=up, steps=none, batches=batches, flops=none, samples=samples)
        return self._phases(ids, costs, round, 0, guess=True)

    def _timeline(self, round: int, cell: int, number: int, reply: Reply) -> Timeline:
        """Return the timeline computed at admission; without admission, compute it now."""
        ids, costs = workers(reply)
        found = self._admitted.get((cell, number))
        if found is None:
            return Timeline(ids, self._phases(ids, costs, round, number), late_of(reply, ids))
        if not np.array_equal(found.ids, ids):
            raise ValueError(
                f"round {round}, cell {cell}, exchange {number}: expected a reply of the clients {found.ids.tolist()} "
                f"that `admit` was asked about, got {ids.tolist()}; an engine must ask about every answer that arrived"
            )
        return found

    def _length(self, timeline: Timeline) -> float:
        """Return the seconds until the server continues: it waits for late clients up to the deadline."""
        last, deadline = float(timeline.phases.finish.max(initial=0.0)), self._edge.deadline_s
        return last if deadline is None else min(last, deadline)

    def _joules(self) -> tuple[np.ndarray, np.ndarray]:
        timelines = list(self._timelines.values())
        ids = np.concatenate([np.zeros(0, np.int64), *(each.ids for each in timelines)])
        return ids, np.concatenate([np.zeros(0), *(self._edge.joules(each.phases) for each in timelines)])

    def _remember_bytes(self, replies: Sequence[Sequence[Reply]]) -> None:
        costs = [exchanges[0].costs for exchanges in replies if exchanges and exchanges[0].ids]
        if costs:
            sizes = [(each.bytes_down, each.bytes_up) for each in costs]
            self._bytes = np.concatenate([np.stack(pair) for pair in sizes], axis=1).mean(1)
