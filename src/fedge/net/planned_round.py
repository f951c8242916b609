"""The plan of the current round, stored before its first offer, so that a restarted server asks the same clients."""

from __future__ import annotations

from pathlib import Path

import msgspec

from fedge.core.storage import write_atomic
from fedge.runs.files import encode_pretty, read_struct

FILE = "checkpoint/round.json"


class PlannedRound(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A round's cohort and number of clients; `attempt` counts how often the round was started, from 1.

    `connected` are all clients that were connected: evaluations and the next round may ask the others.
    """

    round: int
    attempt: int
    num_clients: int
    cohort: tuple[int, ...]
    connected: tuple[int, ...] = ()


class RoundPlan:
    """The stored round plan of one run."""

    def __init__(self, run: Path) -> None:
        self._file = run / FILE
        remedy = "delete it to select the clients of this round again"
        self._stored = read_struct(self._file, PlannedRound, remedy)

    def resumed(self, round: int) -> PlannedRound | None:
        """Return the stored plan if it is of this round, which was then interrupted; else None."""
        return self._stored if self._stored is not None and self._stored.round == round else None

    def store(self, plan: PlannedRound) -> None:
        """Write a plan to disk."""
        if plan != self._stored:
            write_atomic(self._file, encode_pretty(plan), "start the server again")
            self._stored = plan
