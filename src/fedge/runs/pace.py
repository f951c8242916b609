"""Decide how often to write a checkpoint."""

from __future__ import annotations

from typing import Protocol


class CommitPolicy(Protocol):
    """Decides after which rounds a checkpoint is written. After the last round, one is always written."""

    def due(self, round: int, seconds_run: float, seconds_saving: float) -> bool:
        """Return whether to save after this round; if so, the round counts as saved.

        `seconds_run` includes `seconds_saving`.
        """


class Pace:
    """Saves every `every` rounds, but spends at most a share of the time on it."""

    def __init__(self, every: int, share: float = 0.05, last: int = 0) -> None:
        """`last` is the round of the checkpoint that a resumed run starts from."""
        self._every = every
        self._share = share
        self._last = last
        self._first = True

    def due(self, round: int, seconds_run: float, seconds_saving: float) -> bool:
        """Return whether to save after this round; if so, the round counts as saved."""
        if round - self._last < self._every:
            return False
        if not self._first and seconds_saving > self._share * seconds_run:
            return False
        self._first = False
        self._last = round
        return True
