"""The world outside an algorithm, as a protocol: which clients are asked, which answer in time, how long rounds take.

The simulated world computes the seconds of an exchange from its costs; a real network measures them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from fedge.core.algorithm import Costs, Phases, Reply
from fedge.core.drive import Admission
from fedge.core.layout import Tree


class Cohort(NamedTuple):
    """The clients asked in one cell."""

    cell: int
    asked: tuple[int, ...]
    present: tuple[int, ...]  # the clients that did not drop out


class Timeline(NamedTuple):
    """Durations of one exchange in a cell for each client that worked on it, accepted or not, in client order."""

    ids: np.ndarray
    phases: Phases
    late: np.ndarray  # booleans

    @staticmethod
    def measured(reply: Reply) -> Timeline:
        """Return the timeline of the seconds that an engine measured; raises ValueError if it measured none."""
        ids, costs = workers(reply)
        if costs.measured is None:
            raise ValueError("expected costs with measured seconds, got none; use an engine that measures them")
        return Timeline(ids, costs.measured, late_of(reply, ids))


Timelines = Mapping[tuple[int, int], Timeline]
"""All exchanges of a round by (cell, number); exchanges without any answer have no timeline and no number."""


class Spent(NamedTuple):
    """Duration and energy of a round. Phases are means over clients; with the wait they add up to the total."""

    total: float = 0.0
    down: float = 0.0
    compute: float = 0.0
    up: float = 0.0
    ids: np.ndarray = np.zeros(0, np.int64)
    joules: np.ndarray = np.zeros(0)  # of each client in `ids`
    bytes_backhaul: int = 0

    @property
    def wait(self) -> float:
        """Mean time that a client waited for others."""
        return max(0.0, self.total - self.down - self.compute - self.up)  # rounding must not make it negative


class World(Protocol):
    """Cells, clients and time of one run. A world without cells has a single cell, number 0.

    For each round the order of calls is `gather`, `admit`, `spend`, `describe` (on request), `move`.
    """

    clock: Literal["simulated", "measured"]
    """Whether the seconds of this world are simulated or measured."""

    @property
    def seconds(self) -> float:
        """Seconds since the start of the run."""

    def gather(self, round: int, everyone: bool = False) -> list[Cohort]:
        """Return the clients to ask, per cell, omitting cells in which no client is asked.

        `everyone`: ask all available clients and not a selection.

        It is also called after `move` for the next round, which may never run, to evaluate its cohort. Calls have no
        side effects.
        """

    def admit(self, round: int, cells: Sequence[int]) -> Admission | None:
        """Return the function that tells an engine which clients are in time, for states of these cells.

        None if all answers that an engine returns are in time.
        """

    def spend(self, round: int, cells: Sequence[int], replies: Sequence[Sequence[Reply]], state_bytes: int) -> Spent:
        """Advance time by a round in which these cells had these replies; return its duration and energy.

        `state_bytes`: size of a server state, which travels to the centre and back if cells merge in this round.
        """

    def describe(self, class_counts: np.ndarray | None) -> dict[str, Any]:
        """Return a description of the last round per client, with client positions as of that round.

        `class_counts`: training samples per client and class, `[num_clients, num_classes]`.
        """

    def move(self, round: int) -> None:
        """Move clients after a round."""

    def state(self) -> Tree:
        """Return everything that changes from round to round, for a checkpoint."""

    def restore(self, state: Tree) -> None: ...


def answered(replies: Sequence[Reply]) -> list[Reply]:
    """Return the exchanges that at least one client worked on, accepted or not."""
    return [reply for reply in replies if reply.ids or reply.late or reply.rejected]


def workers(reply: Reply) -> tuple[np.ndarray, Costs]:
    """Return (ids, costs) of all clients that worked on an exchange, accepted or not, in client order."""
    refused = [(party.ids, party.costs) for party in (reply.late, reply.rejected) if party]
    parties = [(reply.ids, reply.costs), *refused]
    ids = np.concatenate([np.array(party, np.int64) for party, _ in parties])
    order = np.argsort(ids)
    measured = [costs.measured for _, costs in parties if costs.measured is not None]
    phases = Phases(*_ordered(measured, order)) if len(measured) == len(parties) else None
    counted = _ordered([costs[:-1] for _, costs in parties], order)  # all fields but `measured`
    return ids[order], Costs._make((*counted, phases))


def late_of(reply: Reply, ids: np.ndarray) -> np.ndarray:
    """Return which of these clients were late."""
    return np.isin(ids, reply.late.ids if reply.late else ())


def mean_seconds(timelines: Timelines) -> tuple[float, float, float]:
    """Return the seconds of download, compute and upload: means over clients in time, summed over exchanges."""
    found = np.zeros(3)
    for number in {number for _, number in timelines}:
        same = [timeline for (_, own), timeline in timelines.items() if own == number]
        phases = np.concatenate([np.stack(each.phases[:3])[:, ~each.late] for each in same], axis=1)
        found += phases.mean(1) if phases.size else 0.0
    down, compute, up = found.tolist()
    return down, compute, up


def _ordered(parts: Sequence[tuple[np.ndarray, ...]], order: np.ndarray) -> list[np.ndarray]:
    """Concatenate the arrays of all parts, field by field, and reorder them."""
    return [np.concatenate(arrays)[order] for arrays in zip(*parts, strict=True)]
