"""How good models are: on the pooled test set (CA), on every client's own (UA), and on what they were trained on."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from fedge.core.algorithm import Context, Info
from fedge.core.layout import Tree
from fedge.data.clients import Samples
from fedge.engines.job import Job
from fedge.engines.loop import perform

RECALL_AT = 5
"""Of several labels, those count as found that are among so many likeliest."""


def central(job: Job, variables: Tree, test: Samples) -> dict[str, float]:
    """Accuracy and loss of one model on one test set; a prediction of values has no accuracy."""
    samples = job.network.cast(test)
    outputs = job.network.outputs(variables, samples.x)
    metrics = {"loss": float(job.network.loss(outputs, samples.y))}
    if job.network.task == "values":
        return metrics
    return {"accuracy": float(_scores(job, outputs, samples).mean()), **metrics}


def training(job: Job, variables: Tree, round: int) -> dict[str, float]:
    """Accuracy and loss of one model on all clients' training data."""
    total: dict[str, float] = {}
    sizes = job.sizes(range(len(job.clients.sizes)), round)
    for client in np.flatnonzero(sizes).tolist():
        for name, value in central(job, variables, job.clients.train(client, round)).items():
            total[name] = total.get(name, 0.0) + value * sizes[client] / sizes.sum()
    return total


def users(job: Job, variables: Tree, clients: Iterable[int], info: Info) -> dict[int, float]:
    """Each client's accuracy on its own test set, with its own private state; those without a test set are left out."""
    tests = _own_tests(job, clients, info)
    if not tests:
        return {}
    if not (job.algorithm.personal or job.algorithm.adapt):  # one model for all: one pass over all test sets
        together = Samples(*(torch.cat(side) for side in zip(*tests.values(), strict=True)))
        scores = _scores(job, job.network.outputs(variables, together.x), together)
        parts = torch.split(scores, [len(test) for test in tests.values()])
        return {client: float(part.mean()) for client, part in zip(tests, parts, strict=True)}
    return {client: _score(job, _personal(job, variables, client, info), test) for client, test in tests.items()}


def trained_users(job: Job, state: Tree, clients: Iterable[int], info: Info) -> dict[int, float]:
    """The same after one round of local training, with the model that a client has reached; nothing is kept of it."""
    found = {}
    for client, test in _own_tests(job, clients, info).items():
        if job.clients.num_samples(client, info.round):
            exchange = job.send(next(job.algorithm.round(state, info._replace(cohort=(client,)))), info).exchange
            work = job.algorithm.works[exchange.work]._replace(final=_reached)
            reached, _, _ = perform(job, work, client, exchange.down, job.kept.read(client), info, purpose="trained")
            found[client] = _score(job, reached, test)
    return found


def _reached(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
    return {"x": local["y"], "stats": local["stats"]}, kept


def _own_tests(job: Job, clients: Iterable[int], info: Info) -> dict[int, Samples]:
    tests = {client: job.network.cast(job.clients.test(client, info.round)) for client in clients}
    return {client: test for client, test in tests.items() if len(test)}


def _personal(job: Job, variables: Tree, client: int, info: Info) -> Tree:
    """The model that a client uses: the global one with its private state, adapted if the algorithm says so."""
    if job.algorithm.personal:
        variables = job.algorithm.personal(variables, job.kept.read(client))
    if job.algorithm.adapt and job.clients.sizes[client]:
        variables, _, _ = perform(job, job.algorithm.adapt, client, variables, {}, info, purpose="adapt")
    return variables


def _score(job: Job, variables: Tree, test: Samples) -> float:
    return float(_scores(job, job.network.outputs(variables, test.x), test).mean())


def _scores(job: Job, outputs: Tensor, samples: Samples) -> Tensor:
    """How right the model is about each sample: right or wrong for a class, recall at 5 for labels (0 without any)."""
    if job.network.task == "classes":
        return (outputs.argmax(-1) == samples.y).to(torch.float64)
    found = samples.y.gather(-1, outputs.topk(min(RECALL_AT, outputs.shape[-1]), -1).indices).sum(-1)
    return found.to(torch.float64) / samples.y.sum(-1).clamp(min=1)
