"""How good models are: on the pooled test set (CA) and on every client's own (UA)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from fedge.core.algorithm import Info
from fedge.core.layout import Tree
from fedge.data.clients import Samples
from fedge.engines.job import Job
from fedge.engines.loop import perform


def central(job: Job, variables: Tree, test: Samples) -> dict[str, float]:
    """Accuracy and loss of one model on one test set; a regression has no accuracy."""
    samples = job.network.cast(test)
    outputs = job.network.outputs(variables, samples.x)
    metrics = {"loss": float(job.network.loss(outputs, samples.y))}
    return metrics if job.network.regression else {"accuracy": float(_hits(outputs, samples).mean()), **metrics}


def users(job: Job, variables: Tree, clients: Iterable[int], info: Info) -> np.ndarray:
    """Each client's accuracy on its own test set, with its own private state; those without a test set are left out."""
    tests = {client: job.network.cast(job.clients.test(client)) for client in clients}
    tests = {client: test for client, test in tests.items() if len(test)}
    if not tests:
        return np.empty(0)
    if not (job.algorithm.personal or job.algorithm.adapt):  # one model for all: one pass over all test sets
        together = Samples(*(torch.cat(side) for side in zip(*tests.values(), strict=True)))
        hits = _hits(job.network.outputs(variables, together.x), together)
        return np.array([float(part.mean()) for part in torch.split(hits, [len(test) for test in tests.values()])])
    models = (_personal(job, variables, client, info) for client in tests)
    return np.array(
        [
            float(_hits(job.network.outputs(model, test.x), test).mean())
            for model, test in zip(models, tests.values(), strict=True)
        ]
    )


def _personal(job: Job, variables: Tree, client: int, info: Info) -> Tree:
    """The model that a client uses: the global one with its private state, adapted if the algorithm says so."""
    if job.algorithm.personal:
        variables = job.algorithm.personal(variables, job.kept.read(client))
    if job.algorithm.adapt and job.clients.sizes[client]:
        variables, _, _ = perform(job, job.algorithm.adapt, client, variables, {}, info, purpose="adapt")
    return variables


def _hits(outputs: Tensor, samples: Samples) -> Tensor:
    return (outputs.argmax(-1) == samples.y).to(torch.float64)
