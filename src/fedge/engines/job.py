"""What every engine is given, and what it makes of clients' answers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

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

    def samples(self, client: int) -> Samples:
        """The client's training set in the network's dtype."""
        return self.network.cast(self.clients.train(client))

    def present(self, exchange: Exchange) -> list[int]:
        """The cohort in client order, without clients that have no sample: they weigh nothing and are ignored."""
        return [client for client in sorted(exchange.cohort) if self.clients.sizes[client] > 0]

    def steps(self, work: Work, client: int, info: Info, purpose: str = "batches") -> Steps:
        """The batches that a client's work will look at."""
        if not work.trains:
            return []
        return plan(
            generator(info.seed, purpose, client, info.round),
            int(self.clients.sizes[client]),
            self.batch_size,
            num_steps=info.num_steps if work.num_steps is None else work.num_steps,
            num_epochs=info.num_epochs,
            batches_per_step=work.batches_per_step,
            drop_single=self.network.has_norm,
        )

    def num_batches(self, num_samples: int, client: int) -> int:
        """How many minibatches a gradient over so many samples of the client counts as."""
        return -(-num_samples // min(self.batch_size, int(self.clients.sizes[client])))


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


def request_meta(exchange: Exchange, info: Info) -> dict[str, object]:
    """The plain values of a request: the same for every client, so that it can be broadcast."""
    return {"work": exchange.work} | {name: value for name, value in info._asdict().items() if name != "cohort"}


def check_stats(tree: Tree, network: Network, where: str) -> None:
    """BatchNorm statistics are explicit: work that drops them would go on with stale ones and say nothing."""
    if network.layout.num_stats and not any(name.rpartition(".")[2] == "stats" for name in tree):
        raise TypeError(f"{where} must pass on 'stats': the model has BatchNorm statistics")


class Reduction:
    """Answers to one exchange, given in client order, become its reply."""

    def __init__(self, job: Job, exchange: Exchange, info: Info) -> None:
        self._job, self._exchange, self._info = job, exchange, info
        self._work = job.algorithm.works[exchange.work]
        self._reducer = exchange.reduce(job.algorithm.slots)
        self._answers: list[Answer] = []
        self._bytes_up: list[int] = []
        self._communicated = False

    def add(self, answer: Answer) -> None:
        """Decode, check and count one answer."""
        codec = self._work.codec
        upload = codec.decode(answer.upload, self._exchange.down) if codec else answer.upload
        check_finite(answer, upload, self._info)
        self._reducer.add(upload, answer.samples)
        self._communicated |= any(self._job.algorithm.slots[name].kind == "params" for name in upload)
        self._bytes_up.append(message.size(answer.meta(), answer.upload))
        self._answers.append(answer._replace(upload={}))

    def reply(self) -> Reply:
        answers, work, job = self._answers, self._work, self._job
        ids = tuple(answer.client for answer in answers)
        efforts = [answer.effort for answer in answers]
        steps = np.array([effort.steps for effort in efforts], np.int64)
        grad_samples = np.array([effort.grad_samples for effort in efforts], np.int64)
        bytes_down = message.size(request_meta(self._exchange, self._info), self._exchange.down)
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
        )


def seal(work: Work, answer: Answer, down: Tree, info: Info) -> Answer:
    """An answer as it travels. What is not finite is refused before a codec makes something else of it."""
    if work.codec is None:
        return answer
    check_finite(answer, answer.upload, info)
    return answer._replace(upload=work.codec.encode(answer.upload, down))


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
