"""Layers on `[C, B, ...]`: C clients, each with weights of its own, B samples each.

`forward` says the output and what `backward` will need; `backward` writes the gradient of the layer's own tensors into
`grads`, views into the rows of one `[C, P]` buffer, and says the gradient of the input.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from fedge.core.layout import Tree

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
    def __init__(self, name: str, layer: nn.Linear) -> None:
        self._weight, self._bias = f"{name}.weight", f"{name}.bias" if layer.bias is not None else None

    def forward(self, x: Tensor, views: Views) -> tuple[Tensor, Saved]:
        weight = views.params[self._weight].transpose(1, 2)
        if self._bias is None:
            return torch.bmm(x, weight), x
        return torch.baddbmm(views.params[self._bias].unsqueeze(1), x, weight), x

    def backward(self, g: Tensor, saved: Saved, views: Views, grads: Tree, need_input: bool) -> Tensor:
        grads[self._weight].baddbmm_(g.transpose(1, 2), saved, beta=0)
        if self._bias is not None:
            torch.sum(g, 1, out=grads[self._bias])
        return torch.bmm(g, views.params[self._weight]) if need_input else g


class BatchNorm:
    """BatchNorm1d; a batch of one is normalised by the running statistics, which then stay as they are."""

    def __init__(self, name: str, layer: nn.BatchNorm1d) -> None:
        self._name, self._affine = name, layer.affine
        self._epsilon = layer.eps
        self._momentum = layer.momentum or 0.0

    def forward(self, x: Tensor, views: Views) -> tuple[Tensor, Saved]:
        running_mean, running_var = (views.stats[f"{self._name}.running_{s}"] for s in ("mean", "var"))
        size = x.shape[1]
        if size > 1:
            var, mean = torch.var_mean(x, 1, correction=0)
            running_mean.lerp_(mean, self._momentum)
            running_var.lerp_(var * (size / (size - 1)), self._momentum)
        else:
            mean, var = running_mean.clone(), running_var
        scale = torch.rsqrt(var + self._epsilon).unsqueeze(1)
        normal = (x - mean.unsqueeze(1)) * scale
        if not self._affine:
            return normal, (normal, scale)
        gamma, beta = self._gamma_beta(views)
        return torch.addcmul(beta, normal, gamma), (normal, scale)

    def backward(self, g: Tensor, saved: tuple[Tensor, Tensor], views: Views, grads: Tree, need_input: bool) -> Tensor:
        normal, scale = saved
        if self._affine:
            torch.sum(g * normal, 1, out=grads[f"{self._name}.weight"])
            torch.sum(g, 1, out=grads[f"{self._name}.bias"])
            g = g * self._gamma_beta(views)[0]
        if normal.shape[1] == 1:
            return g * scale
        return scale * (g - g.mean(1, keepdim=True) - normal * (g * normal).mean(1, keepdim=True))

    def _gamma_beta(self, views: Views) -> tuple[Tensor, Tensor]:
        gamma, beta = (views.params[f"{self._name}.{part}"].unsqueeze(1) for part in ("weight", "bias"))
        return gamma, beta


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
