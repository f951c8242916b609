"""What everything cost: one account for every kind of cost, round by round, in total and by client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from fedge.core.algorithm import Reply
from fedge.core.layout import Tree
from fedge.edge.clock import Times

COSTS = ("messages", "bytes_down", "bytes_up", "local_steps", "flops", "sim_seconds")
_CLIENT = ("rounds", "communications", "bytes_down", "bytes_up")


class Ledger:
    """Charges rounds, keeps the totals, and remembers what each client had to do with it."""

    def __init__(self) -> None:
        self.totals: dict[str, float] = dict.fromkeys(COSTS, 0)
        self._clients: dict[int, np.ndarray] = {}

    def charge(self, replies: Sequence[Reply], times: Times) -> dict[str, Any]:
        """The costs of a round, as fields of its record."""
        record: dict[str, Any] = {
            "messages": sum(2 * len(reply.ids) for reply in replies),
            "bytes_down": sum(int(reply.costs.bytes_down.sum()) for reply in replies),
            "bytes_up": sum(int(reply.costs.bytes_up.sum()) for reply in replies),
            "local_steps": sum(int(reply.costs.steps.sum()) for reply in replies),
            "flops": sum(int(reply.costs.flops.sum()) for reply in replies),
            "sim_seconds": times.total,
        }
        for name in COSTS:
            self.totals[name] += record[name]
        for number, reply in enumerate(replies):
            for i, client in enumerate(reply.ids):
                account = self._clients.setdefault(client, np.zeros(len(_CLIENT), np.int64))
                sizes = reply.costs.bytes_down[i], reply.costs.bytes_up[i]
                account += np.array([number == 0, reply.communicated, *sizes], np.int64)
        return record | {
            "sim_down_s": times.down,
            "sim_compute_s": times.compute,
            "sim_up_s": times.up,
            "sim_wait_s": times.wait,
        }

    def clients(self) -> Iterator[dict[str, int]]:
        """One row for each client that took part: rounds, uploads of a model, bytes."""
        for client in sorted(self._clients):
            yield {"client": client, **dict(zip(_CLIENT, self._clients[client].tolist(), strict=True))}

    def state(self) -> Tree:
        """The accounts of the clients, for a checkpoint; the totals are plain numbers."""
        ids = sorted(self._clients)
        rows = np.array([self._clients[client] for client in ids], np.int64).reshape(len(ids), len(_CLIENT))
        return {"ids": torch.tensor(ids, dtype=torch.int64), "accounts": torch.from_numpy(rows)}

    def restore(self, totals: dict[str, float], state: Tree) -> None:
        self.totals = dict(totals)
        self._clients = dict(zip(state["ids"].tolist(), state["accounts"].numpy().copy(), strict=True))
