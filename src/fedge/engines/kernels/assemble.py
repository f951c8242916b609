"""Batched kernels for an ordinary module, where all its layers have one."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from fedge.core.algorithm import Penalty
from fedge.core.layout import Layout
from fedge.data.clients import Samples, Task
from fedge.engines.kernels.layers import (
    LOSSES,
    BatchNorm,
    Flatten,
    Layer,
    Linear,
    Relu,
    Views,
)
from fedge.engines.network import Network


class Kernels:
    """Losses and gradients of a block: weights `[C, P]`, statistics `[C, S]`, batches `[C, B, ...]`."""

    def __init__(self, layout: Layout, layers: list[Layer], task: Task) -> None:
        self._layout, self._layers = layout, layers
        self._loss = LOSSES[task]
        weighted = [i for i, layer in enumerate(layers) if isinstance(layer, Linear | BatchNorm)]
        # Nothing before the first layer with weights needs a gradient; the inputs of the last one are the features.
        self._first, self._last = weighted[0], weighted[-1]

    def gradient(
        self, x: Tensor, stats: Tensor, batch: Samples, out: Tensor, penalty: Penalty | None = None
    ) -> tuple[Tensor, Tensor]:
        """(loss of each client, statistics after it); the gradients are written into `out`, `[C, P]`."""
        stats = stats.clone()
        views = Views(self._layout.views(x), self._layout.views(stats, "stats"))
        grads = self._layout.views(out)
        value, saved, features = batch.x, [], batch.x
        for i, layer in enumerate(self._layers):
            features = value if i == self._last else features
            value, kept = layer.forward(value, views)
            saved.append(kept)
        losses, g = self._loss(value, batch.y)
        for i in reversed(range(self._first, len(self._layers))):
            g = self._layers[i].backward(g, saved[i], views, grads, need_input=i > self._first)
            if penalty is not None and i == self._last:
                extra, extra_g = _penalise(penalty, features)
                losses, g = losses + extra, g + extra_g
        return losses, stats


def _penalise(penalty: Penalty, features: Tensor) -> tuple[Tensor, Tensor]:
    """(what is added to the loss of each client, its gradient)."""
    features = features.detach().requires_grad_()
    added = penalty(features).flatten(1).mean(1)
    (gradient,) = torch.autograd.grad(added.sum(), features)
    return added.detach(), gradient


def assemble(network: Network) -> Kernels | str:
    """The kernels of a network, or the reason why it has none."""
    if problem := _beyond_kernels(network):
        return problem
    layers: list[Layer] = []
    for name, module in _flat(network.module, ""):
        # Exact types: a subclass may compute something else.
        if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
            layers.append(Flatten())
        elif type(module) is nn.ReLU:
            layers.append(Relu())
        elif type(module) is nn.Linear:
            layers.append(Linear(name, module))
        elif type(module) is nn.BatchNorm1d and module.track_running_stats:
            layers.append(BatchNorm(name, module))
        else:
            return f"{type(module).__name__} has no batched kernel"
    return Kernels(network.layout, layers, network.task)


def _beyond_kernels(network: Network) -> str | None:
    """What the layers' types do not show, but would make the kernels compute something else."""
    occurrences = sum(1 for _ in network.module.named_parameters(remove_duplicate=False))
    if occurrences != len(list(network.module.parameters())):
        return "some parameters are shared between layers"
    if len(network.layout.params) != occurrences:
        return "some parameters are frozen"
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(getattr(part, kind) for part in network.module.modules() for kind in hooks):
        return "some layers have hooks"
    return None


def _flat(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """The layers in the order in which they are applied, with their names in the layout."""
    if type(module) is not nn.Sequential:
        yield prefix, module
        return
    for name, part in module._modules.items():  # named_children() would leave out a layer used twice
        assert part is not None
        yield from _flat(part, f"{prefix}{name}.")
