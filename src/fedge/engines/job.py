"""What every engine is given, and what it makes of clients' answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from fedge.core import message
from fedge.core.algorithm import Algorithm, Costs, Exchange, Info, Kept, Reply, Work
from fedge.core.errors import TrainingError
from fedge.core.keys import generator
from fedge.core.layout import Tree
from fedge.data.clients import Clients, Samples
from fedge.data.feed import Steps, plan
from fedge.engines.network import Network


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

    def meta(self) -> dict[str, object]:
        """The plain values of a request: the same for every client, so that it can be broadcast."""
        told = {name: value for name, value in self.info._asdict().items() if name != "cohort"}
        return {"work": self.exchange.work, **told}


class Effort(NamedTuple):
    """What a client's work took, counted by the engine."""

    steps: int = 0
    batches: int = 0  # minibatch gradients
    grad_samples: int = 0  # samples passed through a gradient
    loss: float = float("nan")  # of the first gradient, if there was one


class Answer(NamedTuple):
    """One client's answer to one exchange; sealed, its upload is encoded as it travels."""

    client: int
    samples: int
    effort: Effort
    upload: Tree

    def meta(self) -> dict[str, object]:
        """The plain values that travel beside the upload."""
        return {"client": self.client, "samples": self.samples, **self.effort._asdict()}


def check_stats(tree: Tree, network: Network, where: str) -> None:
    """BatchNorm statistics are explicit: work that drops them would go on with stale ones and say nothing."""
    if network.layout.num_stats and not any(name.rpartition(".")[2] == "stats" for name in tree):
        raise TypeError(f"{where} must pass on 'stats': the model has BatchNorm statistics")


class Reduction:
    """Answers to one exchange, given in client order, become its reply."""

    def __init__(self, job: Job, request: Request) -> None:
        self._job, self._request = job, request
        self._exchange, self._info = request.exchange, request.info
        self._work = job.algorithm.works[self._exchange.work]
        self._reducer = self._exchange.reduce(job.algorithm.slots)
        self._answers: list[Answer] = []
        self._bytes_up: list[int] = []
        self._communicated = False
        self._directions: list[Tensor] = []  # sum of the updates' directions, if it is asked for
        self._num_directions = 0

    def add(self, answer: Answer) -> None:
        """Decode, check and count one answer."""
        codec = self._work.codec
        upload = codec.decode(answer.upload, self._exchange.down) if codec else answer.upload
        check_finite(answer, upload, self._info)
        self._reducer.add(upload, answer.samples)
        if self._job.compare_updates:
            self._compare(upload)
        self._communicated |= any(self._job.algorithm.slots[name].kind == "params" for name in upload)
        self._bytes_up.append(message.size(answer.meta(), answer.upload))
        self._answers.append(answer._replace(upload={}))

    def reply(self) -> Reply:
        answers, work, job = self._answers, self._work, self._job
        ids = tuple(answer.client for answer in answers)
        efforts = [answer.effort for answer in answers]
        steps = np.array([effort.steps for effort in efforts], np.int64)
        grad_samples = np.array([effort.grad_samples for effort in efforts], np.int64)
        bytes_down = message.size(self._request.meta(), self._request.coded)
        return Reply(
            value=self._reducer.value(),
            ids=ids,
            samples=np.array([answer.samples for answer in answers], np.int64),
            missing=tuple(sorted(set(self._exchange.cohort) - set(ids))),
            costs=Costs(
                bytes_down=np.full(len(ids), bytes_down, np.int64),
                bytes_up=np.array(self._bytes_up, np.int64),
                steps=steps,
                batches=np.array([effort.batches for effort in efforts], np.int64),
                flops=grad_samples * job.flops_per_sample
                + steps * work.flops_per_param * job.network.layout.num_params,
            ),
            losses=np.array([effort.loss for effort in efforts], np.float64),
            communicated=self._communicated,
            cosine_distance=self._cosine_distance(),
        )

    def _compare(self, upload: Tree) -> None:
        """Count the direction of an update: the change of the model in its first vector of parameters."""
        slots = self._job.algorithm.slots
        name = next((n for n in upload if slots[n].kind == "params" and not slots[n].moment), None)
        if name is None:
            return
        anchor = slots[name].anchor
        change = (upload[name] if anchor is None else upload[name] - self._exchange.down[anchor]).double()
        if (length := change.norm()) > 0:  # no update has no direction
            direction = change / length
            self._directions = [self._directions[0] + direction] if self._directions else [direction]
            self._num_directions += 1

    def _cosine_distance(self) -> float | None:
        """Of n directions u the mean of 1 - u.v over all pairs, from the length of their sum."""
        n = self._num_directions
        if n < 2:
            return None
        return float(1 - (self._directions[0].square().sum() - n) / (n * (n - 1)))


def seal(work: Work, answer: Answer, down: Tree, info: Info) -> Answer:
    """An answer as it travels. What is not finite is refused before a codec makes something else of it."""
    if work.codec is None:
        return answer
    check_finite(answer, answer.upload, info)
    rng = generator(info.seed, "codec", answer.client, info.round)
    return answer._replace(upload=work.codec.encode(answer.upload, down, rng))


def check_down(down: Tree, info: Info) -> None:
    """A TrainingError if the server is about to send what is not finite."""
    for name, value in down.items():
        if not np.isfinite(value.numpy()).all():
            raise TrainingError(
                f"round {info.round}: {name!r} of the server is not finite. "
                "Training has diverged: lower algorithm.learning_rate"
            )


def check_finite(answer: Answer, upload: Tree, info: Info) -> None:
    """A TrainingError that names round and client if the loss or a value is not finite."""
    found = ["the loss"] if not np.isfinite(answer.effort.loss) and answer.effort.batches else []
    # numpy's check is far faster than torch's on a fresh buffer
    found += [f"the upload {name!r}" for name, value in upload.items() if not np.isfinite(value.numpy()).all()]
    if found:
        raise TrainingError(
            f"round {info.round}, client {answer.client}: {found[0]} is not finite "
            f"(loss of the first step: {answer.effort.loss:g}). "
            "Training has diverged or the client's data is bad: lower algorithm.learning_rate or check the data"
        )
