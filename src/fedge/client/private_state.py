"""Private state of clients whose answers may not count."""

from __future__ import annotations

from collections.abc import Iterable

from fedge.core.algorithm import Kept
from fedge.core.layout import Tree


class HeldState:
    """What the clients of an exchange will keep if their answers count: held until this is known."""

    def __init__(self, kept: Kept, at_once: bool) -> None:
        """With `at_once`, every write is of an answer that counts already, and nothing is held."""
        self._kept, self._at_once = kept, at_once
        self._held: dict[int, Tree] = {}

    def write(self, client: int, tree: Tree) -> None:
        if self._at_once:
            self._kept.write(client, tree)
        else:  # a copy: what a worker found lies in memory that is used again
            self._held[client] = {name: value.clone() for name, value in tree.items()}

    def settle(self, clients: Iterable[int]) -> None:
        """Let these keep it; the others have what they had before."""
        for client in clients:
            if client in self._held:
                self._kept.write(client, self._held[client])
        self._held.clear()
