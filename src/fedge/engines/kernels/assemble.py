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
        for number, layer in reversed(list(enumerate(self._layers))):
            g = layer.backward(g, saved[number], views, grads, need_input=number > 0)
        return losses, stats


def assemble(network: Network) -> Kernels | str:
    """The kernels of a network, or the reason why it has none."""
    layers: list[Layer] = []
    for name, module in _flat(network.module, ""):
        match module:
            case nn.Flatten(start_dim=1, end_dim=-1):
                layers.append(Flatten())
            case nn.ReLU():
                layers.append(Relu())
            case nn.Linear():
                layers.append(Linear(name, module))
            case nn.BatchNorm1d(track_running_stats=True):
                layers.append(BatchNorm(name, module))
            case _:
                return f"{type(module).__name__} has no batched kernel"
    if len({entry.name for entry in network.layout.params}) != len(list(network.module.parameters())):
        return "some parameters are frozen"
    return Kernels(network.layout, layers, network.regression)


def _flat(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    if type(module) is not nn.Sequential:
        yield prefix, module
        return
    for name, part in module.named_children():
        yield from _flat(part, f"{prefix}.{name}".lstrip("."))
