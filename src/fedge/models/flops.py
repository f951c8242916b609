"""FLOPs of a gradient."""

from __future__ import annotations

from math import prod
from typing import Any

from torch import nn

from fedge.models.probe import probe


def count_flops(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Return the FLOPs of a forward and backward pass for one sample: three times the forward multiply-accumulates.

    The count includes linear layers without their bias, convolutions, whose bias adds one per output, and GRU layers,
    3h(i+h) + 13h per step for input i and width h. Normalisation, pooling, activations, embeddings and operations
    outside of layers count as zero.
    """
    total = 0

    def count(layer: nn.Module, _: object, output: Any) -> None:
        nonlocal total
        if isinstance(layer, nn.GRU):
            total += _per_step(layer) * output[0].shape[int(layer.batch_first)]
        elif cost := _per_output(layer):
            total += cost * output.numel()

    hooks = [layer.register_forward_hook(count) for layer in module.modules()]
    try:
        probe(module, shape)
    finally:
        for hook in hooks:
            hook.remove()
    return 3 * total


def _per_output(layer: nn.Module) -> int:
    """Return the multiply-accumulates per value of the layer's output."""
    if isinstance(layer, nn.Linear):
        return layer.in_features
    if isinstance(layer, nn.Conv2d):
        return prod(layer.kernel_size) * layer.in_channels // layer.groups + (layer.bias is not None)
    return 0


def _per_step(gru: nn.GRU) -> int:
    """Return the multiply-accumulates of all layers for one step of one sequence."""
    h, directions = gru.hidden_size, 1 + gru.bidirectional
    inputs = [gru.input_size] + [h * directions] * (gru.num_layers - 1)
    return directions * sum(3 * h * (i + h) + 13 * h for i in inputs)
