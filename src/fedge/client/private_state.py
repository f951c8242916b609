"""Private state that clients store only if their answers are accepted."""

from __future__ import annotations

from collections.abc import Iterable

from fedge.core.algorithm import Kept
from fedge.core.layout import Tree


class HeldState:
    """New private state of the clients of an exchange, held until their answers are accepted or not."""

    def __init__(self, kept: Kept, at_once: bool) -> None:
        """With `at_once`, all answers are already accepted: writes go straight to `kept`."""
        self._kept, self._at_once = kept, at_once
        self._held: dict[int, Tree] = {}

    def write(self, client: int, tree: Tree) -> None:
        if self._at_once:
            self._kept.write(client, tree)
        else:  # a copy: a worker's result is in memory that will be reused
            self._held[client] = {name: value.clone() for name, value in tree.items()}

    def settle(self, clients: Iterable[int]) -> None:
        """Store the new state of these clients; the others keep their previous state."""
        for client in clients:
            if client in self._held:
                self._kept.write(client, self._held[client])
        self._held.clear()
