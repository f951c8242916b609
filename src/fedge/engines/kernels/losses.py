"""Losses of a block of clients, and their gradients with respect to the model's outputs `[C, B, k]`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fedge.core.algorithm import Penalty
from fedge.core.registered import Task

Loss = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]
"""(outputs, targets, shares as in `Batch`) -> (loss of each client, gradient)."""


def softmax_cross_entropy(logits: Tensor, target: Tensor, shares: Tensor | None) -> tuple[Tensor, Tensor]:
    log_p = torch.log_softmax(logits, -1)
    places = target.unsqueeze(-1)
    losses = weigh(log_p.gather(-1, places).squeeze(-1), shares).neg_()
    return losses, _scaled(log_p.exp_().scatter_(-1, places, -1.0, reduce="add"), shares)


def label_cross_entropy(logits: Tensor, target: Tensor, shares: Tensor | None) -> tuple[Tensor, Tensor]:
    each = binary_cross_entropy_with_logits(logits, target, reduction="none").sum(-1)
    return weigh(each, shares), _scaled(logits.sigmoid().sub_(target), shares)


def squared_error(output: Tensor, target: Tensor, shares: Tensor | None) -> tuple[Tensor, Tensor]:
    difference = output - target
    return weigh(difference.square().sum(-1).mul_(0.5), shares), _scaled(difference, shares)


LOSSES: dict[Task, Loss] = {"classes": softmax_cross_entropy, "labels": label_cross_entropy, "values": squared_error}


def penalise(penalty: Penalty, features: Tensor, shares: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (the penalty of each client, its gradient with respect to the features)."""
    features = features.detach().requires_grad_()
    with torch.enable_grad():
        each = penalty(features)
        added = weigh(each.reshape(*each.shape[:2], -1).mean(2), shares)
    (gradient,) = torch.autograd.grad(added.sum(), features)
    return added.detach(), gradient


def weigh(each: Tensor, shares: Tensor | None) -> Tensor:
    """Return the mean of `[C, B]` over each client's samples."""
    return each.mean(1) if shares is None else (each * shares).sum(1)


def _scaled(g: Tensor, shares: Tensor | None) -> Tensor:
    """Return the gradient of the mean, given the gradient of each sample's loss."""
    return g.div_(g.shape[1]) if shares is None else g.mul_(shares.unsqueeze(-1))
