"""The interface of a batched layer: C clients, each with its own weights and B samples, `[C, B, ...]`.

`forward` returns the output and what `backward` will need. `backward` passes the gradients of the layer's tensors to
`into` and returns the gradient of the input. `into` may store the gradients or update the weights immediately, so a
layer computes the gradient of its input before it passes on those of its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from fedge.core.algorithm import Affine
from fedge.core.layout import Layout, Tree
from fedge.data.clients import Samples

Saved = Any  # known to the layer only


class Batch(NamedTuple):
    """Samples `[C, B, ...]`. If a client has fewer than B, its samples come first and padding follows."""

    samples: Samples
    shares: Tensor | None = None  # [C, B]: weight of each sample in its client's mean, 0 for padding; None: all 1/B
    generators: Sequence[torch.Generator] = ()  # one per client, if the model draws random numbers


class Weights(NamedTuple):
    """Weights that steps update in place: rows `[C, P]`, and their tensors by name, `[C, ...]`."""

    y: Tensor
    views: Tree


class Pass(NamedTuple):
    """One pass of a block of models over a batch."""

    params: Tree  # by name, [C, ...]
    stats: Tree  # running statistics by name, [C, ...]: a training pass updates them in place
    training: bool
    shares: Tensor | None = None  # as in Batch
    generators: Sequence[torch.Generator] = ()


class Into(Protocol):
    """Receives the gradients of a block's tensors."""

    def add(self, name: str, gradient: Tensor) -> None:
        """Receive the gradient `[C, ...]` of the tensor with this name."""

    def add_product(self, name: str, a: Tensor, b: Tensor) -> None:
        """Receive the gradient of a tensor `[C, m, n]` as a product of `[C, m, k]` and `[C, k, n]`."""


class Layer(Protocol):
    weighted: bool  # whether it has weights

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, Saved]: ...
    def backward(self, g: Tensor, saved: Saved, run: Pass, into: Into, need_input: bool) -> Tensor:
        """Return the gradient of the input; undefined unless `need_input`. It may overwrite `g`."""


class Written:
    """Writes gradients to the rows of one buffer `[C, P]`."""

    def __init__(self, layout: Layout, out: Tensor) -> None:
        self._views = layout.views(out)

    def add(self, name: str, gradient: Tensor) -> None:
        self._views[name].copy_(gradient)

    def add_product(self, name: str, a: Tensor, b: Tensor) -> None:
        self._views[name].baddbmm_(a, b, beta=0)


class Stepped:
    """Applies gradients to the weights immediately and in place: y = decay*y + drift - scale*gradient."""

    def __init__(self, layout: Layout, views: Tree, affine: Affine) -> None:
        """`views`: the weights by name, `[C, ...]`."""
        self._views = views
        decay, drift, scale = affine
        self._decay, self._drift = _by_name(layout, decay), _by_name(layout, drift)
        self._scale = _by_name(layout, scale)

    def add(self, name: str, gradient: Tensor) -> None:
        y, scale = self._start(name), self._scale(name)
        if isinstance(scale, Tensor):
            y.addcmul_(gradient, scale, value=-1)
        else:
            y.add_(gradient, alpha=-scale)

    def add_product(self, name: str, a: Tensor, b: Tensor) -> None:
        decay, drift, scale = self._decay(name), self._drift(name), self._scale(name)
        if isinstance(scale, Tensor) and scale.numel() > len(a):  # one scale per weight
            self.add(name, torch.bmm(a, b))
            return
        if isinstance(scale, Tensor):
            a, scale = a * scale, 1.0
        y = self._views[name]
        if isinstance(decay, Tensor):
            y, decay = y.mul_(decay), 1.0
        y.baddbmm_(a, b, beta=decay, alpha=-scale)
        if drift is not None:
            y.add_(drift)

    def _start(self, name: str) -> Tensor:
        """Return the weights after decay and drift."""
        y, decay, drift = self._views[name], self._decay(name), self._drift(name)
        if isinstance(decay, Tensor) or decay != 1.0:
            y.mul_(decay)
        return y if drift is None else y.add_(drift)


Constant = TypeVar("Constant", float, None)


def _by_name(layout: Layout, part: Tensor | Constant) -> Callable[[str], Tensor | Constant]:
    """Return a function from a tensor's name to its part of a vector `[P]` or rows `[C, P]`; others apply to all."""
    if not isinstance(part, Tensor):
        return lambda name: part
    if part.shape[-1] == layout.num_params:
        return layout.views(part).__getitem__
    shapes = {entry.name: len(entry.shape) for entry in layout.params}
    return lambda name: part.view(*part.shape[:-1], *([1] * shapes[name]))
