"""One client at a time, through autograd: the definition of correct."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedge.core.algorithm import ALL, Batch, Context, Exchange, Info, Reply, Work, moved
from fedge.core.keys import torch_seed
from fedge.core.layout import Tree
from fedge.data.clients import Samples
from fedge.engines.job import Answer, Effort, Job, Reduction, check_stats, seal


class Loop:
    """Runs every exchange client by client."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        return [self._run(exchange, info) for exchange, info in zip(exchanges, infos, strict=True)]

    def _run(self, exchange: Exchange, info: Info) -> Reply:
        reduction = Reduction(self._job, exchange, info)
        for client in self._job.present(exchange):
            reduction.add(answer(self._job, client, exchange.work, exchange.down, info))
        return reduction.reply()


def answer(job: Job, client: int, work_name: str, down: Tree, info: Info) -> Answer:
    """A client's whole part in an exchange: private state in, work, private state out, upload encoded."""
    work = job.algorithm.works[work_name]
    before = job.kept.read(client)
    upload, kept, effort = perform(job, work, client, down, before, info)
    if kept is not before:
        job.kept.write(client, kept)
    return seal(work, Answer(client, int(job.clients.sizes[client]), effort, upload), down, info)


def perform(
    job: Job, work: Work, client: int, down: Tree, kept: Tree, info: Info, purpose: str = "batches"
) -> tuple[Tree, Tree, Effort]:
    """The client half on one client: (upload, kept, what it took)."""
    gradients = _Gradients(job, client)
    context = Context(
        client=torch.tensor([client]),
        round=info.round,
        rate=info.rate,
        num_clients=info.num_clients,
        step=0,
        num_samples=torch.tensor([float(job.clients.sizes[client])], dtype=job.network.dtype),
        num_steps=torch.zeros(1, dtype=job.network.dtype),
        layout=job.network.layout,
        grad_at=gradients,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(
            torch_seed(info.seed, f"{purpose}/torch", client, info.round)
        )  # dropout knows no other generator
        local = work.init(down, kept, context)
        steps = job.steps(work, client, info, purpose)
        if work.trains:
            check_stats(local, job.network, "init")
            gradients.stats = local["stats"]
        for number, batches in enumerate(steps):
            context = context._replace(step=number)
            gradient = work.gradient(local, batches, context) if work.gradient else gradients(local["y"], batches[0])
            local = {**local, "stats": gradients.stats}
            if work.affine:
                local["y"] = moved(local["y"], gradient, work.affine(local, context))
            elif work.step:
                local = work.step(local, gradient, context)
        context = context._replace(num_steps=torch.full_like(context.num_steps, len(steps)))
        upload, kept = work.final(down, local, kept, context)
    if work.trains:
        check_stats({**upload, **kept}, job.network, "final")
    return upload, kept, gradients.effort._replace(steps=len(steps))


class _Gradients:
    """`grad_at` for one client: advances the BatchNorm statistics and counts, in call order."""

    def __init__(self, job: Job, client: int) -> None:
        self._job, self._client = job, client
        self._samples: Samples | None = None
        self.stats = job.network.variables["stats"]
        self.effort = Effort()

    def __call__(self, x: Tensor, batch: Batch) -> Tensor:
        if self._samples is None:  # work that trains nothing need not make the client's data
            self._samples = self._job.samples(self._client)
        part = self._samples if batch is ALL else Samples(self._samples.x[batch], self._samples.y[batch])
        loss, gradient, stats = self._job.network.gradient(x, self.stats, part)
        if batch is not ALL:
            self.stats = stats
        steps, batches, grad_samples, first = self.effort
        self.effort = Effort(
            steps,
            batches + self._job.num_batches(len(part), self._client),
            grad_samples + len(part),
            first if batches else float(loss),
        )
        return gradient
