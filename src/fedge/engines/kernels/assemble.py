"""Batched kernels for an ordinary module, where all its layers have one."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from fedge.core.layout import Layout
from fedge.data.clients import Samples
from fedge.engines.kernels.layers import (
    BatchNorm,
    Flatten,
    Layer,
    Linear,
    Relu,
    Views,
    softmax_cross_entropy,
    squared_error,
)
from fedge.engines.network import Network


class Kernels:
    """Losses and gradients of a block: weights `[C, P]`, statistics `[C, S]`, batches `[C, B, ...]`."""

    def __init__(self, layout: Layout, layers: list[Layer], regression: bool) -> None:
        self._layout, self._layers = layout, layers
        self._loss = squared_error if regression else softmax_cross_entropy
        # Nothing before the first layer with weights needs a gradient.
        self._first = next(i for i, layer in enumerate(layers) if isinstance(layer, Linear | BatchNorm))

    def gradient(self, x: Tensor, stats: Tensor, batch: Samples, out: Tensor) -> tuple[Tensor, Tensor]:
        """(loss of each client, statistics after it); the gradients are written into `out`, `[C, P]`."""
        stats = stats.clone()
        views = Views(self._layout.views(x), self._layout.views(stats, "stats"))
        grads = self._layout.views(out)
        value, saved = batch.x, []
        for layer in self._layers:
            value, kept = layer.forward(value, views)
            saved.append(kept)
        losses, g = self._loss(value, batch.y)
        for i in reversed(range(self._first, len(self._layers))):
            g = self._layers[i].backward(g, saved[i], views, grads, need_input=i > self._first)
        return losses, stats


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
    return Kernels(network.layout, layers, network.regression)


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
