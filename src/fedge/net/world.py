"""The world of a networked run: connected clients and measured times."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch

from fedge.core.algorithm import Phases, Reply
from fedge.core.drive import Admission
from fedge.core.layout import Tree
from fedge.core.state_version import Version
from fedge.core.world import Cohort, Spent, Timeline, answered, mean_seconds
from fedge.net.planned_round import PlannedRound

_NONE = (-1, -1, -1)


class Selection(Protocol):
    """Selects the cohort among the available clients."""

    def number(self, num_clients: int) -> int: ...
    def select(self, able: np.ndarray, number: int, seed: int, round: int, cell: int) -> np.ndarray: ...


class Named(NamedTuple):
    """Versions of a client's private state; None: the run's initial state."""

    durable: Version | None = None  # after the last committed round in which its answer counted
    base: Version | None = None  # after the last exchange in which its answer counted


class MeasuredWorld:
    """Connected clients, measured time, and the current versions of clients' private state.

    `connected` returns the numbers of the connected clients, `joules` the energy of measured phases.
    """

    clock: Literal["simulated", "measured"] = "measured"

    def __init__(
        self,
        selection: Selection,
        secret_seed: int,
        over_selection: float,
        connected: Callable[[], Sequence[int]],
        joules: Callable[[Phases], np.ndarray],
    ) -> None:
        self._selection, self._seed, self._over = selection, secret_seed, over_selection
        self._connected, self._joules = connected, joules
        self._seconds, self._began = 0.0, time.monotonic()
        self._num_clients = 1
        self._plan: PlannedRound | None = None
        self._enough = True
        self._planned: int | None = None  # answers wanted from the current cohort; None: all
        self._durable: dict[int, Version] = {}
        self._base: dict[int, Version] = {}
        self._has_begun = False
        self.awaited: frozenset[int] = frozenset()  # clients connected at the last commit before a restart

    @property
    def seconds(self) -> float:
        return self._seconds

    def begin(self, num_clients: int, plan: PlannedRound | None, enough: bool) -> None:
        """Start a round among `num_clients` clients; `plan` is that of an interrupted round, which starts again.

        Unless `enough` of them are connected, the cohort is empty.
        """
        self._num_clients, self._plan, self._enough = num_clients, plan, enough
        self._durable = dict(self._base)
        self._has_begun, self.awaited = True, frozenset()
        self._began = time.monotonic()

    def named(self, client: int) -> Named:
        """Return the versions of private state that an offer to a client names."""
        return Named(self._durable.get(client), self._base.get(client))

    def count(self, client: int, version: Version) -> None:
        """Record the version of private state that belongs to a counted answer."""
        self._base[client] = version

    def planned(self, num_asked: int) -> int:
        """Return the number of answers that close an exchange with `num_asked` clients; fewer with over-selection."""
        return num_asked if self._planned is None else min(num_asked, self._planned)

    def gather(self, round: int, everyone: bool = False) -> list[Cohort]:
        if not self._enough:
            return []
        wanted = self._selection.number(self._num_clients)
        if self._plan is not None and self._plan.round == round:
            asked = self._plan.cohort
        else:
            able = np.array([client for client in self._connected() if client < self._num_clients], np.int64)
            number = ceil(wanted * self._over - 1e-9)
            chosen = able if everyone else self._selection.select(able, number, self._seed, round, 0)
            asked = tuple(chosen.tolist())
        self._planned = len(asked) if everyone else min(len(asked), wanted)
        return [Cohort(0, asked, asked)] if asked else []

    def admit(self, round: int, cells: Sequence[int]) -> Admission | None:
        return None  # lateness is decided by arrival

    def spend(self, round: int, cells: Sequence[int], replies: Sequence[Sequence[Reply]], state_bytes: int) -> Spent:
        timelines = {
            (cell, number): Timeline.measured(reply)
            for cell, exchanges in zip(cells, replies, strict=True)
            for number, reply in enumerate(answered(exchanges))
        }
        total = time.monotonic() - self._began
        self._seconds += total
        ids = np.concatenate([np.zeros(0, np.int64), *(each.ids for each in timelines.values())])
        joules = np.concatenate([np.zeros(0), *(self._joules(each.phases) for each in timelines.values())])
        return Spent(total, *mean_seconds(timelines), ids, joules)

    def describe(self, class_counts: np.ndarray | None) -> dict[str, Any]:
        raise ValueError("expected edge.record = false: a real run has no cells to describe")

    def move(self, round: int) -> None:
        pass

    def state(self) -> Tree:
        versions = np.full((self._num_clients, len(_NONE)), _NONE, np.int64)
        for client, version in self._base.items():
            versions[client] = version
        there = self._connected() if self._has_begun else ()
        present = np.zeros(max(self._num_clients, 1 + max(there, default=0)), np.int64)
        present[list(there)] = 1
        return {
            "seconds": torch.tensor([self._seconds], dtype=torch.float64),
            "versions": torch.from_numpy(versions),
            "connected": torch.from_numpy(present),
        }

    def restore(self, state: Tree) -> None:
        self._seconds = float(state["seconds"][0])
        rows = [tuple(row) for row in state["versions"].tolist()]
        self._num_clients = len(rows)
        self._base = {client: Version(*row) for client, row in enumerate(rows) if row != _NONE}
        self._durable = dict(self._base)
        self.awaited = frozenset(client for client, there in enumerate(state["connected"].tolist()) if there)
