"""Run the client half of an algorithm on one client, through autograd: the definition of correct."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from fedge.client.client_side import ClientSide
from fedge.core.algorithm import ALL, Batch, Context, Info, Work, check_stats, moved, next_move
from fedge.core.effort import Effort, num_batches
from fedge.core.keys import seeded, torch_seed
from fedge.core.layout import Tree
from fedge.data.clients import Samples


class LocalStep(NamedTuple):
    """A local step, as an observer sees it. Step 0 is the moment before training."""

    number: int
    local: Tree  # after the step
    gradient: Tensor | None = None
    loss: Tensor | None = None  # of its first batch, before the step


Observer = Callable[[LocalStep], None]


def perform(
    side: ClientSide,
    work: Work,
    client: int,
    down: Tree,
    kept: Tree,
    info: Info,
    purpose: str = "batches",
    observe: Observer | None = None,
) -> tuple[Tree, Tree, Effort]:
    """Run the client half on one client and return (upload, private state, effort).

    The observer is called at every step and must not change the training.
    """
    gradients = _Gradients(side, work, client, info.round)
    network, before = side.network, kept
    down, kept = network.place(down), network.place(kept)
    given = kept
    context = Context(
        client=torch.tensor([client], device=network.device),
        round=info.round,
        rate=info.rate,
        num_clients=info.num_clients,
        step=0,
        num_samples=torch.tensor([float(gradients.size)], dtype=network.dtype, device=network.device),
        num_steps=torch.zeros(1, dtype=network.dtype, device=network.device),
        layout=side.network.layout,
        grad_at=gradients,
        mean_loss=gradients.mean_loss,
    )
    with seeded(torch_seed(info.seed, f"{purpose}/torch", client, info.round), network.device):
        local = work.init(down, kept, context)
        if work.look:
            local = {**local, **work.look(gradients.samples.x)}
        steps = side.steps(work, client, info, purpose)
        if work.trains:
            check_stats(local, side.network.layout, "init")
            gradients.stats = local["stats"]
            if observe:
                observe(LocalStep(0, local))
        for number, batches in enumerate(steps):
            context = context._replace(step=number)
            gradients.begin_step()
            gradient = work.gradient(local, batches, context) if work.gradient else gradients(local["y"], batches[0])
            local = {**local, "stats": gradients.stats}
            if work.affine:
                local["y"] = moved(local["y"], gradient, next_move(work, local, context))
            elif work.step:
                local = work.step({**local, "raw": gradient}, gradient, context)
            if observe:
                observe(LocalStep(number + 1, local, gradient, gradients.losses[number]))
        context = context._replace(num_steps=torch.full_like(context.num_steps, len(steps)))
        upload, kept = work.final(down, local, kept, context)
    if work.trains:
        check_stats({**upload, **kept}, network.layout, "final")
    kept = before if kept is given else network.fetch(kept)
    return network.fetch(upload), kept, gradients.effort._replace(steps=len(steps))


class _Gradients:
    """`grad_at` for one client: advances BatchNorm statistics and effort counts in call order."""

    def __init__(self, side: ClientSide, work: Work, client: int, round: int) -> None:
        self._side, self._penalty, self._client, self._round = side, work.penalty, client, round
        self.size = side.data.num_samples(client, round)
        self.stats = side.network.place(side.network.variables)["stats"]
        self.effort = Effort()
        self.losses: list[Tensor | None] = []  # of the first batch of each step; None before that batch

    @cached_property
    def samples(self) -> Samples:
        """The training samples, built lazily because some work reads none."""
        return self._side.samples(self._client, self._round)

    def begin_step(self) -> None:
        """Start a step: the next gradient's loss becomes the step's loss."""
        self.losses.append(None)

    def mean_loss(self) -> Tensor:
        """Return `Context.mean_loss`, summed in float64."""
        known = torch.stack([loss for loss in self.losses if loss is not None])
        return known.mean(dtype=torch.float64).to(known.dtype).reshape(1)

    def __call__(self, x: Tensor, batch: Batch) -> Tensor:
        part = self.samples if batch is ALL else Samples(self.samples.x[batch], self.samples.y[batch])
        loss, gradient, stats = self._side.network.gradient(x, self.stats, part, self._penalty)
        if batch is not ALL:
            self.stats = stats
        if self.losses and self.losses[-1] is None:
            self.losses[-1] = loss
        steps, batches, grad_samples, first = self.effort
        self.effort = Effort(
            steps,
            batches + num_batches(len(part), self.size, self._side.batch_size),
            grad_samples + len(part),
            first if batches else float(loss),
        )
        return gradient
