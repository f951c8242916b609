"""The client side of a run: the client half of an algorithm, a model, data and private state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedge.client.network import Network
from fedge.core.algorithm import Algorithm, Info, Kept, Work
from fedge.core.keys import shared_generator
from fedge.core.metric_set import NO_METRICS, MetricSet
from fedge.data.batch_feed import Steps, plan
from fedge.data.clients import Clients, Samples


class ClientSide(NamedTuple):
    """One client, or in simulation all of them in one process."""

    algorithm: Algorithm
    network: Network
    data: Clients
    kept: Kept
    batch_size: int
    metrics: MetricSet = NO_METRICS

    def samples(self, client: int, round: int) -> Samples:
        """Return the client's training set in the network's dtype."""
        return self.network.cast(self.data.train(client, round))

    def probe(self) -> Samples:
        """Return two samples of the largest client, for a trial training step."""
        client = int(np.argmax(self.data.sizes))
        return Samples(*(side[:2] for side in self.samples(client, 1)))

    def sizes(self, clients: Sequence[int], round: int) -> np.ndarray:
        """Return the number of training samples of each client in a round."""
        return np.array([self.data.num_samples(client, round) for client in clients], np.int64)

    def steps(self, work: Work, client: int, info: Info, purpose: str = "batches") -> Steps:
        """Return the batches of each local step of a client's work; empty for work that does not train."""
        if not work.trains:
            return []
        return plan(
            shared_generator(info.seed, purpose, client, info.round),
            self.data.num_samples(client, info.round),
            self.batch_size,
            num_steps=info.num_steps if work.num_steps is None else work.num_steps,
            num_epochs=info.num_epochs,
            batches_per_step=work.batches_per_step,
            drop_single=self.network.has_norm,
        )
