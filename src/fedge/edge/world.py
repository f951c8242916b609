"""The world outside of the algorithm: who is where, who is asked, who answers in time, and how long it all takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from fedge.core.algorithm import Costs, Reply
from fedge.core.drive import Admission
from fedge.core.keys import generator
from fedge.core.layout import Tree
from fedge.edge.clock import Clock, Participants, Phases, Places
from fedge.edge.selection import SelectionOptions

Amount = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""(minibatches, samples) that each of some clients works on in a round, as far as is known beforehand."""


class Cohort(NamedTuple):
    """Who is asked in a cell."""

    cell: int
    asked: tuple[int, ...]
    present: tuple[int, ...]  # those that did not drop out


class Labour(NamedTuple):
    """One exchange of a cell, and how long it took those who worked on it."""

    cell: int
    number: int  # of the exchange in its round
    ids: np.ndarray
    late: np.ndarray  # whose work was for nothing
    phases: Phases
    total: float  # until the server went on


class Spent(NamedTuple):
    """What a round took: means over clients, which with the wait make up the whole."""

    total: float = 0.0
    down: float = 0.0
    compute: float = 0.0
    up: float = 0.0
    ids: np.ndarray = np.zeros(0, np.int64)
    joules: np.ndarray = np.zeros(0)  # of each of these clients
    bytes_backhaul: int = 0

    @property
    def wait(self) -> float:
        """What a client spent, on average, waiting for others."""
        return max(0.0, self.total - self.down - self.compute - self.up)  # not less by rounding


class World:
    """Cells, clients and time after some number of rounds. Without cells all clients are in one."""

    def __init__(
        self,
        edge: Clock,
        selection: SelectionOptions,
        num_clients: int,
        num_params: int,
        seed: int,
        amount: Amount,
        model_bytes: int,
    ) -> None:
        self._edge, self._selection, self._seed, self._amount = edge, selection, seed, amount
        self._num_clients, self._num_params = num_clients, num_params
        self._slowness, self._rates = edge.deal_devices(num_clients, seed)
        self.places = edge.place(num_clients, seed)
        self._seconds = np.zeros(edge.cell_grid.num_cells)  # since the start, of each cell
        self._bytes = np.array([model_bytes, model_bytes], np.float64)  # down and up, of a client in the last round
        self._labours: list[Labour] = []

    @property
    def seconds(self) -> float:
        """Simulated, since the start."""
        return float(self._seconds.max())

    def gather(self, round: int) -> list[Cohort]:
        """Who is asked; cells in which nobody is are left out."""
        edge, selection, seed = self._edge, self._selection, self._seed
        able = edge.availability.available(self._num_clients, seed, round, self.seconds)
        found = []
        for cell, members in enumerate(self._members()):
            number = selection.number_in_cell(len(members)) if edge.divided else selection.number(len(members))
            chosen = selection.select(members if able.all() else members[able[members]], number, seed, round, cell)
            asked = selection.fit(chosen, edge.deadline_s, lambda ids: self._predict(ids, round))
            if len(asked):
                found.append(Cohort(cell, tuple(asked.tolist()), tuple(self._stay(asked, round).tolist())))
        return found

    def admit(self, round: int) -> Admission | None:
        """Who is in time, for an engine to ask, exchange by exchange; None if nobody can be late."""
        deadline = self._edge.deadline_s
        if deadline is None:
            return None
        seen: dict[int, int] = {}

        def decide(which: int, ids: tuple[int, ...], costs: Costs) -> np.ndarray:
            exchange = seen.get(which, 0)
            seen[which] = exchange + 1
            return np.asarray(self._phases(np.array(ids, np.int64), costs, round, exchange).finish <= deadline)

        return decide

    def spend(self, round: int, cells: Sequence[int], replies: Sequence[Sequence[Reply]], state_bytes: int) -> Spent:
        """Let the time pass that a round took, in which these cells had these replies.

        `state_bytes`: the size of a server's state, which travels to the centre and back if cells merge now.
        """
        before, edge = self.seconds, self._edge
        travels = state_bytes if edge.divided and edge.merges(round) else 0
        self._labours = list(self._work(round, cells, replies))
        took = np.zeros(len(self._seconds))
        for labour in self._labours:
            took[labour.cell] += labour.total
        if not any(len(labour.ids) > labour.late.sum() for labour in self._labours):  # nobody answered
            took[:] = edge.deadline_s or edge.retry_s
        if edge.waits(round):
            self._seconds[:] = (self._seconds + took).max() + edge.backhaul_s(travels)
        else:
            self._seconds += took
        self._remember_bytes(replies)
        down, compute, up = self._means().tolist()
        ids, joules = self._joules()
        return Spent(self.seconds - before, down, compute, up, ids, joules, 2 * len(self._seconds) * travels)

    def move(self, round: int) -> None:
        """Let clients move after a round."""
        self.places = self._edge.move(self.places, self._rates, round, self.seconds, self._seed)

    def describe(self) -> dict[str, Any]:
        """The last round, client by client, before anybody moved."""
        grid, labours = self._edge.cell_grid, self._labours
        ids = sorted({client for labour in labours for client in labour.ids.tolist()})
        row = {client: i for i, client in enumerate(ids)}
        busy, finish = np.zeros((3, len(ids))), np.zeros(len(ids))
        late = np.zeros(len(ids), bool)
        latency: list[float | None] = [None] * grid.num_cells
        for labour in labours:
            rows = [row[client] for client in labour.ids.tolist()]
            start, phases = latency[labour.cell] or 0.0, labour.phases
            busy[:, rows] += phases.down, phases.compute, phases.up
            finish[rows] = start + phases.finish
            late[rows] |= labour.late
            latency[labour.cell] = start + labour.total
        return {
            "rows": grid.rows,
            "cols": grid.cols,
            "occupancy": np.bincount(self.places.cells, minlength=grid.num_cells).tolist(),
            "clients": ids,
            "cell": self.places.cells[ids].tolist(),
            **dict(zip(("down_s", "compute_s", "up_s"), busy.tolist(), strict=True)),
            "wait_s": np.maximum(finish - busy.sum(0), 0.0).tolist(),
            "finish_s": finish.tolist(),
            "late": late.tolist(),
            "latency": latency,
            "deadline_s": self._edge.deadline_s,
        }

    def state(self) -> Tree:
        """Where all are and what time it is, for a checkpoint."""
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
        """The clients of each cell."""
        if len(self._seconds) == 1:
            return [np.arange(self._num_clients)]
        counts = np.bincount(self.places.cells, minlength=len(self._seconds))
        return np.split(np.argsort(self.places.cells, kind="stable"), np.cumsum(counts)[:-1])

    def _stay(self, asked: np.ndarray, round: int) -> np.ndarray:
        """Those that do not drop out."""
        if not self._edge.dropout:
            return asked
        chances = generator(self._seed, "edge/dropout", round=round).random(self._num_clients)
        return np.asarray(asked[chances[asked] >= self._edge.dropout])

    def _phases(self, ids: np.ndarray, costs: Costs, round: int, exchange: int, guess: bool = False) -> Phases:
        places = Places(self.places.cells[ids], self.places.positions[ids])
        crew = Participants(
            ids,
            places,
            costs,
            self._slowness[ids],
            self._num_clients,
            self._num_params,
            self._seed,
            round,
            exchange,
            guess,
        )
        return self._edge.phases(crew)

    def _predict(self, ids: np.ndarray, round: int) -> Phases:
        batches, samples = self._amount(ids)
        none = np.zeros(len(ids), np.int64)
        down, up = (np.full(len(ids), size) for size in self._bytes)
        costs = Costs(bytes_down=down, bytes_up=up, steps=none, batches=batches, flops=none, samples=samples)
        return self._phases(ids, costs, round, 0, guess=True)

    def _work(self, round: int, cells: Sequence[int], replies: Sequence[Sequence[Reply]]) -> Iterator[Labour]:
        """All exchanges, each with everybody who worked on it, in time or not."""
        deadline = self._edge.deadline_s
        for cell, exchanges in zip(cells, replies, strict=True):
            for number, reply in enumerate(exchanges):
                parties = [(reply.ids, reply.costs)] + ([reply.late] if reply.late else [])
                ids = np.concatenate([np.array(party[0], np.int64) for party in parties])
                costs = Costs(*map(np.concatenate, zip(*(party[1] for party in parties), strict=True)))
                late = np.arange(len(ids)) >= len(reply.ids)
                phases = self._phases(ids, costs, round, number)
                total = float(phases.finish.max(initial=0.0))
                yield Labour(cell, number, ids, late, phases, total if deadline is None else min(total, deadline))

    def _means(self) -> np.ndarray:
        """Seconds of downloading, computing and uploading: of each exchange the mean over those in time, added up."""
        found = np.zeros(3)
        for number in {labour.number for labour in self._labours}:
            same = [labour for labour in self._labours if labour.number == number]
            phases = np.concatenate([np.stack(labour.phases[:3])[:, ~labour.late] for labour in same], axis=1)
            found += phases.mean(1) if phases.size else 0.0
        return found

    def _joules(self) -> tuple[np.ndarray, np.ndarray]:
        ids = np.concatenate([labour.ids for labour in self._labours] or [np.zeros(0, np.int64)])
        return ids, np.concatenate([self._edge.joules(labour.phases) for labour in self._labours] or [np.zeros(0)])

    def _remember_bytes(self, replies: Sequence[Sequence[Reply]]) -> None:
        costs = [exchanges[0].costs for exchanges in replies if exchanges and exchanges[0].ids]
        if costs:
            sizes = [(each.bytes_down, each.bytes_up) for each in costs]
            self._bytes = np.concatenate([np.stack(pair) for pair in sizes], axis=1).mean(1)
