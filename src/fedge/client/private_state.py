"""Private state on probation."""

from __future__ import annotations

from collections.abc import Iterable

from fedge.core.algorithm import Kept
from fedge.core.layout import Tree


class Pending:
    """What the clients of an exchange would keep, held back until it is known who was in time."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._held: dict[int, Tree] = {}

    def read(self, client: int) -> Tree:
        return self._kept.read(client)

    def write(self, client: int, tree: Tree) -> None:
        # A copy: what a worker found lies in memory that is used again.
        self._held[client] = {name: value.clone() for name, value in tree.items()}

    def release(self, clients: Iterable[int]) -> None:
        """Let these keep it; the others have what they had before."""
        for client in clients:
            if client in self._held:
                self._kept.write(client, self._held[client])
        self._held.clear()
