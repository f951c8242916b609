"""Costs of a run, of each kind: per round, in total and per client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from fedge.core.algorithm import Costs, Reply
from fedge.core.fields import COSTS
from fedge.core.layout import Tree
from fedge.core.world import Spent

_CLIENT = ("rounds", "communications", "bytes_down", "bytes_up")


class Ledger:
    """Accumulates the costs of rounds, in total and per client.

    Late and rejected answers are charged like accepted ones.
    """

    def __init__(self) -> None:
        self.totals: dict[str, float] = dict.fromkeys(COSTS, 0)
        self._clients: dict[int, np.ndarray] = {}
        self._joules: dict[int, float] = {}

    def charge(self, replies: Sequence[Reply], spent: Spent) -> dict[str, Any]:
        """Charge a round and return its costs as fields of its record."""
        parties = [party for reply in replies for party in _parties(reply)]
        record: dict[str, Any] = {
            "messages": sum(costs.num_messages for _, costs, _ in parties),
            "bytes_down": sum(int(costs.bytes_down.sum()) for _, costs, _ in parties),
            "bytes_up": sum(int(costs.bytes_up.sum()) for _, costs, _ in parties),
            "bytes_backhaul": spent.bytes_backhaul,
            "local_steps": sum(int(costs.steps.sum()) for _, costs, _ in parties),
            "flops": sum(int(costs.flops.sum()) for _, costs, _ in parties),
            "sim_seconds": spent.total,
            "energy_j": float(spent.joules.sum()),
        }
        for name in COSTS:
            self.totals[name] += record[name]
        seen: set[int] = set()
        for ids, costs, communicated in parties:
            for i, client in enumerate(ids):
                account = self._clients.setdefault(client, np.zeros(len(_CLIENT), np.int64))
                account += np.array(
                    [client not in seen, communicated, costs.bytes_down[i], costs.bytes_up[i]], np.int64
                )
                seen.add(client)
        for client, joules in zip(spent.ids.tolist(), spent.joules.tolist(), strict=True):
            self._joules[client] = self._joules.get(client, 0.0) + joules
        return record | {
            "sim_down_s": spent.down,
            "sim_compute_s": spent.compute,
            "sim_up_s": spent.up,
            "sim_wait_s": spent.wait,
        }

    def clients(self) -> Iterator[dict[str, Any]]:
        """Yield one row per client that took part: rounds, model uploads, bytes, energy."""
        for client in sorted(self._clients):
            counted = dict(zip(_CLIENT, self._clients[client].tolist(), strict=True))
            yield {"client": client, **counted, "energy_j": self._joules.get(client, 0.0)}

    def state(self) -> Tree:
        """Return the clients' accounts, for a checkpoint. The totals are plain numbers and stored separately."""
        ids = sorted(self._clients)
        rows = np.array([self._clients[client] for client in ids], np.int64).reshape(len(ids), len(_CLIENT))
        joules = [self._joules.get(client, 0.0) for client in ids]
        return {
            "ids": torch.tensor(ids, dtype=torch.int64),
            "accounts": torch.from_numpy(rows),
            "joules": torch.tensor(joules, dtype=torch.float64),
        }

    def restore(self, totals: dict[str, float], state: Tree) -> None:
        self.totals = dict(totals)
        ids = state["ids"].tolist()
        self._clients = dict(zip(ids, state["accounts"].numpy().copy(), strict=True))
        self._joules = dict(zip(ids, state["joules"].tolist(), strict=True))


def _parties(reply: Reply) -> Iterator[tuple[tuple[int, ...], Costs, bool]]:
    """Yield (clients, costs, whether they communicated) for accepted, late and rejected answers."""
    yield reply.ids, reply.costs, reply.communicated
    for party in (reply.late, reply.rejected):
        if party:
            yield party.ids, party.costs, False
