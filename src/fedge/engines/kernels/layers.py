"""Layers on `[C, B, ...]`: C clients, each with weights of its own, B samples each.

`forward` says the output and what `backward` will need; `backward` writes the gradient of the layer's own tensors into
`grads`, views into the rows of one `[C, P]` buffer, and says the gradient of the input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from fedge.core.layout import Tree
from fedge.data.clients import Task

Saved = Any  # a layer's own business


class Views(NamedTuple):
    """The tensors of a block of models by name: weights, and running statistics to be advanced in place."""

    params: Tree
    stats: Tree


class Layer(Protocol):
    def forward(self, x: Tensor, views: Views) -> tuple[Tensor, Saved]: ...
    def backward(self, g: Tensor, saved: Saved, views: Views, grads: Tree, need_input: bool) -> Tensor: ...


class Flatten:
    def forward(self, x: Tensor, views: Views) -> tuple[Tensor, Saved]:
        return x.flatten(2), x.shape

    def backward(self, g: Tensor, saved: Saved, views: Views, grads: Tree, need_input: bool) -> Tensor:
        return g.view(saved)


class Relu:
    def forward(self, x: Tensor, views: Views) -> tuple[Tensor, Saved]:
        out = x.clamp(min=0)
        return out, out

    def backward(self, g: Tensor, saved: Tensor, views: Views, grads: Tree, need_input: bool) -> Tensor:
        return g * (saved > 0)


class Linear:
    def __init__(self, prefix: str, layer: nn.Linear) -> None:
        self._weight, self._bias = f"{prefix}weight", f"{prefix}bias" if layer.bias is not None else None

    def forward(self, x: Tensor, views: Views) -> tuple[Tensor, Saved]:
        rows = x.reshape(len(x), -1, x.shape[-1])  # inputs of more than one dimension are more rows
        weight = views.params[self._weight].transpose(1, 2)
        if self._bias is None:
            out = torch.bmm(rows, weight)
        else:
            out = torch.baddbmm(views.params[self._bias].unsqueeze(1), rows, weight)
        return out.view(*x.shape[:-1], -1), rows

    def backward(self, g: Tensor, saved: Tensor, views: Views, grads: Tree, need_input: bool) -> Tensor:
        rows = g.reshape(len(g), -1, g.shape[-1])
        grads[self._weight].baddbmm_(rows.transpose(1, 2), saved, beta=0)
        if self._bias is not None:
            torch.sum(rows, 1, out=grads[self._bias])
        return torch.bmm(rows, views.params[self._weight]).view(*g.shape[:-1], -1) if need_input else g


class BatchNorm:
    """BatchNorm1d; a batch of one is normalised by the running statistics, which then stay as they are."""

    def __init__(self, prefix: str, layer: nn.BatchNorm1d) -> None:
        self._prefix, self._affine = prefix, layer.affine
        self._epsilon = layer.eps
        self._momentum = layer.momentum or 0.0

    def forward(self, x: Tensor, views: Views) -> tuple[Tensor, Saved]:
        running_mean, running_var = (views.stats[f"{self._prefix}running_{s}"] for s in ("mean", "var"))
        single = x.shape[1] == 1
        rows = _channels_last(x)
        if single:
            mean, var = running_mean.clone(), running_var
        else:
            size = rows.shape[1]
            var, mean = torch.var_mean(rows, 1, correction=0)
            running_mean.lerp_(mean, self._momentum)
            running_var.lerp_(var * (size / (size - 1)), self._momentum)
        scale = torch.rsqrt(var + self._epsilon).unsqueeze(1)
        normal = (rows - mean.unsqueeze(1)) * scale
        out = torch.addcmul(self._beta(views), normal, self._gamma(views)) if self._affine else normal
        return _channels_back(out, x.shape), (normal, scale, single)

    def backward(
        self, g: Tensor, saved: tuple[Tensor, Tensor, bool], views: Views, grads: Tree, need_input: bool
    ) -> Tensor:
        (normal, scale, single), shape = saved, g.shape
        g = _channels_last(g)
        if self._affine:
            torch.sum(g * normal, 1, out=grads[f"{self._prefix}weight"])
            torch.sum(g, 1, out=grads[f"{self._prefix}bias"])
            g = g * self._gamma(views)
        if not single:
            g = g - g.mean(1, keepdim=True) - normal * (g * normal).mean(1, keepdim=True)
        return _channels_back(g * scale, shape)

    def _gamma(self, views: Views) -> Tensor:
        return views.params[f"{self._prefix}weight"].unsqueeze(1)

    def _beta(self, views: Views) -> Tensor:
        return views.params[f"{self._prefix}bias"].unsqueeze(1)


def _channels_last(x: Tensor) -> Tensor:
    """`[C, B, channels]` or `[C, B, channels, length]` as `[C, rows, channels]`."""
    return x if x.dim() == 3 else x.transpose(2, 3).flatten(1, 2)


def _channels_back(rows: Tensor, shape: torch.Size) -> Tensor:
    """What `_channels_last` was given."""
    return rows if len(shape) == 3 else rows.view(shape[0], shape[1], shape[3], shape[2]).transpose(2, 3)


def softmax_cross_entropy(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(loss of each client, gradient of its mean over the batch)."""
    log_p = torch.log_softmax(logits, -1)
    losses = -log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1).mean(1)
    g = log_p.exp_()
    g.scatter_add_(-1, target.unsqueeze(-1), g.new_full((1, 1, 1), -1.0).expand(*target.shape, 1))
    return losses, g.div_(target.shape[1])


def squared_error(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(loss of each client, gradient of its mean over the batch)."""
    difference = output - target
    return 0.5 * (difference**2).sum(-1).mean(1), difference / target.shape[1]


def label_cross_entropy(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(loss of each client, gradient of its mean over the batch)."""
    losses = binary_cross_entropy_with_logits(logits, target, reduction="none").sum(-1).mean(1)
    return losses, (logits.sigmoid() - target) / target.shape[1]


LOSSES: dict[Task, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "classes": softmax_cross_entropy,
    "labels": label_cross_entropy,
    "values": squared_error,
}
