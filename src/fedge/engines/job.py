"""What every engine is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedge.client.network import Network
from fedge.core.algorithm import Algorithm, Exchange, Info, Kept, Work
from fedge.core.errors import TrainingError
from fedge.core.keys import generator
from fedge.core.layout import Tree
from fedge.core.message import WorkRequest
from fedge.data.clients import Clients, Samples
from fedge.data.feed import Steps, plan


class Job(NamedTuple):
    """One experiment as an engine sees it: an algorithm, a model, and clients with data and private state."""

    algorithm: Algorithm
    network: Network
    clients: Clients
    kept: Kept
    batch_size: int
    flops_per_sample: int
    compare_updates: bool = False  # measure the cosine distance between a cohort's updates

    def samples(self, client: int, round: int) -> Samples:
        """The client's training set in the network's dtype."""
        return self.network.cast(self.clients.train(client, round))

    def probe(self) -> Samples:
        """A few samples to try the network out on."""
        client = int(np.argmax(self.clients.sizes))
        return Samples(*(side[:2] for side in self.samples(client, 1)))

    def sizes(self, clients: Sequence[int], round: int) -> np.ndarray:
        """How many samples they have to train on."""
        return np.array([self.clients.num_samples(client, round) for client in clients], np.int64)

    def present(self, exchange: Exchange) -> list[int]:
        """The cohort in client order, without clients that have no sample: they weigh nothing and are ignored."""
        return [client for client in sorted(exchange.cohort) if self.clients.sizes[client] > 0]

    def send(self, exchange: Exchange, info: Info) -> Request:
        """An exchange as it travels to its cohort."""
        codec = self.algorithm.works[exchange.work].down_codec
        if codec is None:
            return Request(exchange, info, exchange.down)
        check_down(exchange.down, info)
        coded = codec.encode(exchange.down, {}, generator(info.seed, f"codec/{exchange.work}/down", round=info.round))
        return Request(exchange._replace(down=codec.decode(coded, {})), info, coded)

    def steps(self, work: Work, client: int, info: Info, purpose: str = "batches") -> Steps:
        """The batches that a client's work will look at."""
        if not work.trains:
            return []
        return plan(
            generator(info.seed, purpose, client, info.round),
            self.clients.num_samples(client, info.round),
            self.batch_size,
            num_steps=info.num_steps if work.num_steps is None else work.num_steps,
            num_epochs=info.num_epochs,
            batches_per_step=work.batches_per_step,
            drop_single=self.network.has_norm,
        )

    def num_batches(self, num_samples: int, size: int) -> int:
        """How many minibatches a gradient over so many of a client's `size` samples counts as."""
        return -(-num_samples // min(self.batch_size, size))


class Request(NamedTuple):
    """What is asked of a cohort: `down` of the exchange as the clients see it, and `coded`, which travels."""

    exchange: Exchange
    info: Info
    coded: Tree

    def meta(self) -> WorkRequest:
        """The plain values of a request."""
        return WorkRequest(work=self.exchange.work, **self.info.told())


def check_stats(tree: Tree, network: Network, where: str) -> None:
    """BatchNorm statistics are explicit: work that drops them would go on with stale ones and say nothing."""
    if network.layout.num_stats and not any(name.rpartition(".")[2] == "stats" for name in tree):
        raise TypeError(f"{where} must pass on 'stats': the model has BatchNorm statistics")


def check_down(down: Tree, info: Info) -> None:
    """A TrainingError if the server is about to send what is not finite."""
    for name, value in down.items():
        if not np.isfinite(value.numpy()).all():
            raise TrainingError(
                f"round {info.round}: {name!r} of the server is not finite. "
                "Training has diverged: lower algorithm.learning_rate"
            )
