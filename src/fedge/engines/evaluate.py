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
    personal, adapt = job.algorithm.personal, job.algorithm.adapt
    accuracies = []
    for client in clients:
        samples = job.network.cast(job.clients.test(client))
        if not len(samples):
            continue
        own = personal(variables, job.kept.read(client)) if personal else variables
        if adapt:
            own, _, _ = perform(job, adapt, client, own, {}, info, purpose="adapt")
        accuracies.append(float(_hits(job.network.outputs(own, samples.x), samples).mean()))
    return np.array(accuracies)


def _hits(outputs: Tensor, samples: Samples) -> Tensor:
    return (outputs.argmax(-1) == samples.y).to(torch.float64)
