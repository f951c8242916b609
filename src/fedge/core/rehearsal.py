"""Rehearsal of one client's work without data: one step with a made-up gradient.

Work consists of functions on vectors that do not depend on the source of a gradient. A rehearsal therefore shows the
names, shapes and dtypes of what a client works on, uploads and keeps, and how many gradients it computes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedge.core.algorithm import ALL, Batch, Context, Info, Work, check_stats, moved
from fedge.core.layout import Layout, Tree


class Gradients(NamedTuple):
    """Number of gradients that a client's work computes."""

    full: int  # over all samples, once
    step: int  # over a minibatch, in every step
    step_full: int  # over all samples, in every step


class Rehearsed(NamedTuple):
    """The result of a rehearsal; its values are meaningless."""

    local: Tree  # at the end of training
    upload: Tree  # before its codec
    kept: Tree
    gradients: Gradients


def rehearse(
    work: Work, down: Tree, kept: Tree, info: Info, layout: Layout, input_shape: Sequence[int], gradient: Tensor
) -> Rehearsed:
    """Perform one step of the work for client 0 with one sample; every gradient is the given vector."""
    calls: Counter[tuple[str, bool]] = Counter()
    phase = "once"

    def grad_at(x: Tensor, batch: Batch) -> Tensor:
        calls[phase, batch is ALL] += 1
        return gradient

    one = gradient.new_ones(1)
    context = Context(
        client=torch.zeros(1, dtype=torch.int64, device=gradient.device),
        round=info.round,
        rate=info.rate,
        num_clients=info.num_clients,
        step=0,
        num_samples=one,
        num_steps=one,
        layout=layout,
        grad_at=grad_at,
        mean_loss=lambda: torch.zeros_like(one),
    )
    local, batches = work.init(down, kept, context), [None] * work.batches_per_step
    if work.look:
        local = {**local, **work.look(torch.zeros(1, *input_shape))}
    if work.trains:
        check_stats(local, layout, "init")
        phase = "step"
        g = work.gradient(local, batches, context) if work.gradient else grad_at(local["y"], batches[0])
        if work.affine:
            local = {**local, "y": moved(local["y"], g, work.affine(local, context))}
        elif work.step:
            local = work.step({**local, "raw": g}, g, context)
            del local["raw"]  # the gradient itself does not count as memory
        phase = "once"
    upload, kept = work.final(down, local, kept, context)
    if work.trains:
        check_stats({**upload, **kept}, layout, "final")
    gradients = Gradients(calls["once", True], calls["step", False], calls["step", True])
    return Rehearsed(local, upload, kept, gradients)
