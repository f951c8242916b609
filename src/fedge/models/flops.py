"""What a gradient costs."""

from __future__ import annotations

from math import prod

from torch import Tensor, nn

from fedge.models.probe import probe


def count_flops(module: nn.Module, shape: tuple[int, ...]) -> int:
    """FLOPs of a forward and a backward pass for one sample: three times the forward multiply-accumulates.

    Counted are linear layers, without their bias, and convolutions, whose bias is one more for each output.
    Normalisation, pooling, activations and what is no layer of the module count nothing.
    """
    total = 0

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        nonlocal total
        if cost := _per_output(layer):
            total += cost * output.numel()

    hooks = [layer.register_forward_hook(count) for layer in module.modules()]
    try:
        probe(module, shape)
    finally:
        for hook in hooks:
            hook.remove()
    return 3 * total


def _per_output(layer: nn.Module) -> int:
    """Multiply-accumulates for one number of the layer's output."""
    if isinstance(layer, nn.Linear):
        return layer.in_features
    if isinstance(layer, nn.Conv2d):
        return prod(layer.kernel_size) * layer.in_channels // layer.groups + (layer.bias is not None)
    return 0
