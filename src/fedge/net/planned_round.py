"""The plan of the current round, stored before its first offer, so that a restarted server asks the same clients."""

from __future__ import annotations

from pathlib import Path

import msgspec

from fedge.core.errors import RunError
from fedge.core.storage import write_atomic, writing
from fedge.runs.files import encode_pretty, read_bytes

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
        data = read_bytes(self._file)
        self._stored = self._decode(data) if data is not None else None

    def resumed(self, round: int) -> PlannedRound | None:
        """Return the stored plan if it is of this round, which was then interrupted; else None."""
        return self._stored if self._stored is not None and self._stored.round == round else None

    def store(self, plan: PlannedRound) -> None:
        """Write a plan to disk."""
        if plan != self._stored:
            with writing(self._file, "start the server again"):
                write_atomic(self._file, encode_pretty(plan))
            self._stored = plan

    def _decode(self, data: bytes) -> PlannedRound:
        try:
            return msgspec.json.decode(data, type=PlannedRound)
        except (ValueError, RecursionError) as error:  # msgspec's own errors, and UnicodeDecodeError
            raise RunError(
                f"{self._file} is damaged: {error}; delete it to select the clients of this round again"
            ) from None
