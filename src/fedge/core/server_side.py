"""The server's side of a run. It holds no samples and no private state of any client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch

from fedge.core.algorithm import Algorithm, Exchange, Info
from fedge.core.answer import Request, send
from fedge.core.layout import Layout, Tree
from fedge.core.metric_set import NO_METRICS, MetricSet
from fedge.core.registered import RegisteredClients
from fedge.core.rehearsal import Rehearsed, rehearse

OnBad = Literal["stop", "reject"]


class Limits(NamedTuple):
    """What the gate allows, and what happens to an answer that it rejects."""

    max_norm: float | None = None  # L2 norm of the change of each vector; None: any
    on_bad: OnBad = "stop"


_NO_LIMITS = Limits()


@dataclass
class ServerSide:
    """An algorithm for a model, the registered clients, and the cost of their work.

    On a network, clients may register between rounds; everything else stays the same.
    """

    algorithm: Algorithm
    layout: Layout
    variables: Tree  # of the initial model: x and stats
    clients: RegisteredClients
    batch_size: int
    flops_per_sample: int
    drop_single: bool = False  # clients drop a last batch of one sample, as BatchNorm requires
    compare_updates: bool = False  # measure the cosine distance between a cohort's updates
    limits: Limits = _NO_LIMITS
    metrics: MetricSet = NO_METRICS
    rehearsals: dict[str, Rehearsed] = field(default_factory=dict, compare=False)  # per work, created on demand

    def present(self, exchange: Exchange) -> list[int]:
        """Return the cohort in client order, without clients that have no samples: their weight is zero."""
        return [client for client in sorted(exchange.cohort) if self.clients.sizes[client] > 0]

    def send(self, exchange: Exchange, info: Info) -> Request:
        """Return the request for an exchange, encoded for its cohort."""
        return send(exchange, info, self.algorithm.works[exchange.work])

    def rehearse(self, exchange: Exchange, info: Info) -> Rehearsed:
        """Return the result of rehearsing the exchange's work, as shapes without values."""
        name = exchange.work
        if name not in self.rehearsals:
            try:
                found = self._rehearse(exchange, info, "meta")
            except (
                RuntimeError,
                TypeError,
                NotImplementedError,
            ):  # some work needs values, such as a codec's residuals
                found = self._rehearse(exchange, info, "cpu")
            self.rehearsals[name] = found._replace(
                local={}, kept={}, upload={key: value.to("meta") for key, value in found.upload.items()}
            )
        return self.rehearsals[name]

    def _rehearse(self, exchange: Exchange, info: Info, device: str) -> Rehearsed:
        down, kept = (
            {name: value.to(device) for name, value in tree.items()}
            for tree in (exchange.down, self.algorithm.keep(self.variables))
        )
        work, gradient = self.algorithm.works[exchange.work], torch.zeros_like(self.variables["x"], device=device)
        return rehearse(work, down, kept, info, self.layout, self.clients.shape, gradient)
