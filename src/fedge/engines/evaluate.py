"""How good models are: on the pooled test set (CA), on every client's own (UA), and on what they were trained on.

Each measure has two halves: one divides the work and puts the results together, the other is a task for a worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from fedge.core.algorithm import Context, Info, Work
from fedge.core.layout import Tree
from fedge.data.clients import Clients, Samples
from fedge.engines import block_work as rows
from fedge.engines import loop
from fedge.engines.block import Content, Workers, divide, read_kept
from fedge.engines.job import Job
from fedge.engines.kernels.assemble import Batched

RECALL_AT = 5
"""Of several labels, those count as found that are among so many likeliest."""

_PIECE = 1024  # samples of a test set that are looked at in one go
_CLIENTS = 32  # whose data is looked at in one task, where one model is for all

Meta = Mapping[str, Any]


def score(job: Job, variables: Tree, samples: Samples) -> dict[str, float]:
    """Accuracy and loss of one model on one set of samples; a prediction of values has no accuracy."""
    return _average([(_total(job, variables, samples), {})])


def prepare(job: Job) -> None:
    """Have the pooled test set at hand, before there are worker processes that would each make their own."""
    _pooled_test(job.clients)


def central(job: Job, workers: Workers, variables: Tree) -> dict[str, float]:
    """The same on the pooled test set."""
    starts = range(0, len(_pooled_test(job.clients)), _PIECE)
    return _average(workers.map("central", variables, (({"start": start}, {}) for start in starts)))


def training(job: Job, workers: Workers, variables: Tree, round: int) -> dict[str, float]:
    """The same on all clients' training data."""
    clients = np.flatnonzero(job.sizes(range(len(job.clients.sizes)), round)).tolist()
    return _average(workers.map("training", variables, _ask(clients, {"round": round})))


def users(job: Job, workers: Workers, variables: Tree, clients: Iterable[int], info: Info) -> dict[int, float]:
    """Each client's accuracy on its own test set, with its own private state; those without a test set are left out."""
    told, clients = info.told(), list(clients)
    if not (job.algorithm.personal or job.algorithm.adapt):
        return _by_client(workers.map("users", variables, _ask(clients, told)))
    adapt = job.algorithm.adapt
    able, others = (
        [client for client in clients if bool(adapt and job.clients.sizes[client]) is adapts]
        for adapts in (True, False)
    )
    blocks = [(block, True) for block in divide(job, adapt, able, info, workers)] if adapt else []
    blocks += [(block, False) for block in _parts(others, workers.num_rows)]
    items = (({"clients": block, "adapts": adapts, **told}, read_kept(job, block)) for block, adapts in blocks)
    return _by_client(workers.map("personal", variables, items))


def trained_users(job: Job, workers: Workers, state: Tree, clients: Iterable[int], info: Info) -> dict[int, float]:
    """The same after one round of local training, with the model that a client has reached; nothing is kept of it."""
    found: dict[int, float] = {}
    left = [client for client in clients if job.clients.sizes[client]]
    while left:
        # The server may ask one part of a cohort after another.
        exchange = next(job.algorithm.round(state, info._replace(cohort=tuple(left))))
        request = job.send(exchange, info)
        asked = set(exchange.cohort).intersection(left)
        blocks = divide(job, job.algorithm.works[exchange.work], sorted(asked), info, workers)
        told = msgspec.structs.asdict(request.meta())
        items = (({"clients": block, **told}, read_kept(job, block)) for block in blocks)
        found |= _by_client(workers.map("trained", request.exchange.down, items))
        left = [client for client in left if client not in asked]
    return found


def measure_central(job: Job, batched: Batched | None, shared: Tree, meta: Meta, tensors: Tree) -> Content:
    """The task of `central`: one piece of the test set."""
    start, test = meta["start"], _pooled_test(job.clients)
    return _total(job, shared, Samples(*(side[start : start + _PIECE] for side in test))), {}


def measure_training(job: Job, batched: Batched | None, shared: Tree, meta: Meta, tensors: Tree) -> Content:
    """The task of `training`: some clients."""
    return _total(job, shared, _together(job.clients.train(client, meta["round"]) for client in meta["clients"])), {}


def measure_users(job: Job, batched: Batched | None, shared: Tree, meta: Meta, tensors: Tree) -> Content:
    """The task of `users`, where one model is for all: one pass over the test sets of some clients."""
    tests = _own_tests(job, meta)
    if not any(len(test) for test in tests):
        return _accuracies(meta["clients"], [None] * len(tests)), {}
    together = _together(tests)
    scores = _scores(job, job.network.outputs(shared, together.x), together)
    parts = torch.split(scores, [len(test) for test in tests])
    return _accuracies(meta["clients"], [_mean(part) for part in parts]), {}


def measure_personal(job: Job, batched: Batched | None, shared: Tree, meta: Meta, tensors: Tree) -> Content:
    """The task of `users`, where each has a model of its own: the global one with its private state, adapted."""
    work = job.algorithm.adapt if meta["adapts"] else None
    variables = job.algorithm.personal(shared, tensors) if job.algorithm.personal else shared
    if work:
        variables = _perform(job, batched, work, variables, {}, meta, "adapt")
    return _score_models(job, batched, variables, meta), {}


def measure_trained(job: Job, batched: Batched | None, shared: Tree, meta: Meta, tensors: Tree) -> Content:
    """The task of `trained_users`: a block of clients."""
    work = job.algorithm.works[meta["work"]]._replace(final=_reached)
    return _score_models(job, batched, _perform(job, batched, work, shared, tensors, meta, "trained"), meta), {}


def _reached(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
    return {"x": local["y"], "stats": local["stats"]}, kept


def _perform(job: Job, batched: Batched | None, work: Work, down: Tree, kept: Tree, meta: Meta, purpose: str) -> Tree:
    """What a block of clients uploads, as rows."""
    clients, info = meta["clients"], _info(meta)
    if batched is not None:
        return rows.perform(job, batched, work, clients, down, kept, info, purpose)[0]
    uploads = [
        loop.perform(job, work, client, _row(down, i), _row(kept, i), info, purpose)[0]
        for i, client in enumerate(clients)
    ]
    return {name: torch.stack([upload[name] for upload in uploads]) for name in uploads[0]}


def _score_models(job: Job, batched: Batched | None, variables: Tree, meta: Meta) -> dict[str, Any]:
    """The accuracy of each client's model on its own test set."""
    tests = _own_tests(job, meta)
    if batched is None:
        outputs: Iterable[Tensor] = (job.network.outputs(_row(variables, i), test.x) for i, test in enumerate(tests))
    else:
        outputs = _outputs(batched, job.network.place(variables), [test.x for test in tests])
    found = [_mean(_scores(job, each, test)) for each, test in zip(outputs, tests, strict=True)]
    return _accuracies(meta["clients"], found)


def _outputs(batched: Batched, variables: Tree, inputs: Sequence[Tensor]) -> list[Tensor]:
    """What each client's model says of its inputs. They are padded, which in evaluation mode nothing depends on."""
    x, stats = (rows.as_rows(variables[name], len(inputs)) for name in ("x", "stats"))
    longest = max(len(each) for each in inputs)
    padded = inputs[0].new_zeros(len(inputs), longest, *inputs[0].shape[1:])
    for row, each in zip(padded, inputs, strict=True):
        row[: len(each)] = each
    width = max(1, _PIECE // len(inputs))
    parts = [batched.outputs(x, stats, part) for part in torch.split(padded, width, 1)]
    together = torch.cat(parts, 1) if parts else padded
    return [row[: len(each)] for row, each in zip(together, inputs, strict=True)]


def _total(job: Job, variables: Tree, samples: Samples) -> dict[str, float]:
    """Sums over samples, of which `_average` makes means."""
    samples = job.network.cast(samples)
    outputs = job.network.outputs(variables, samples.x)
    found = {"count": len(samples), "loss": float(job.network.loss(outputs, samples.y)) * len(samples)}
    if job.network.task != "values":
        found["accuracy"] = float(_scores(job, outputs, samples).sum())
    return found


def _average(totals: Iterable[Content]) -> dict[str, float]:
    found: dict[str, float] = {}
    for meta, _ in totals:
        found = {name: found.get(name, 0.0) + value for name, value in meta.items()}
    count = found.pop("count")
    return {name: found[name] / count for name in ("accuracy", "loss") if name in found}


def _scores(job: Job, outputs: Tensor, samples: Samples) -> Tensor:
    """How right the model is about each sample: right or wrong for a class, recall at 5 for labels (0 without any)."""
    if job.network.task == "classes":
        return (outputs.argmax(-1) == samples.y).to(torch.float64)
    found = samples.y.gather(-1, outputs.topk(min(RECALL_AT, outputs.shape[-1]), -1).indices).sum(-1)
    return found.to(torch.float64) / samples.y.sum(-1).clamp(min=1)


def _mean(scores: Tensor) -> float | None:
    return float(scores.mean()) if len(scores) else None


def _accuracies(clients: Sequence[int], values: Sequence[float | None]) -> dict[str, Any]:
    """What a task says of clients; nothing of those without a test set."""
    known = [(client, value) for client, value in zip(clients, values, strict=True) if value is not None]
    return {"clients": [client for client, _ in known], "values": [value for _, value in known]}


def _by_client(found: Iterable[Content]) -> dict[int, float]:
    pairs = (pair for meta, _ in found for pair in zip(meta["clients"], meta["values"], strict=True))
    return dict(sorted(pairs))


def _ask(clients: Sequence[int], told: Meta) -> Iterator[Content]:
    """Tasks for some clients each."""
    return (({"clients": part, **told}, {}) for part in _parts(clients, _CLIENTS))


def _parts(clients: Sequence[int], size: int) -> list[list[int]]:
    return [list(clients[start : start + size]) for start in range(0, len(clients), size)]


def _own_tests(job: Job, meta: Meta) -> list[Samples]:
    return [job.network.cast(job.clients.test(client, meta["round"])) for client in meta["clients"]]


def _together(parts: Iterable[Samples]) -> Samples:
    return Samples(*(torch.cat(side) for side in zip(*parts, strict=True)))


def _row(tree: Tree, i: int) -> Tree:
    return {name: value[i] if value.dim() == 2 else value for name, value in tree.items()}


def _info(meta: Meta) -> Info:
    return Info(**{name: meta[name] for name in Info._fields if name != "cohort"})


@lru_cache(maxsize=1)
def _pooled_test(clients: Clients) -> Samples:
    """It never changes, and some have to make it."""
    return clients.pooled_test()
