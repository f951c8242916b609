"""What a batched layer is: C clients, each with weights of its own and B samples, `[C, B, ...]`.

`forward` says the output and what `backward` will need; `backward` hands the gradient of the layer's own tensors to
`into`, and says the gradient of the input. What `into` does with them is not the layer's business: write them down, or
step the weights at once. So a layer takes the gradient of its input with its weights before it hands theirs over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from fedge.core.algorithm import Affine
from fedge.core.layout import Layout, Tree
from fedge.data.clients import Samples

Saved = Any  # a layer's own business


class Batch(NamedTuple):
    """Samples `[C, B, ...]`. Where clients have fewer than B, theirs come first and padding follows."""

    samples: Samples
    shares: Tensor | None = None  # [C, B]: of each sample in its client's mean, 0 for padding; None: all 1/B
    generators: Sequence[torch.Generator] = ()  # one for each client, where the model draws random numbers


class Weights(NamedTuple):
    """What steps move in place: rows `[C, P]`, and the tensors in them by name, `[C, ...]`."""

    y: Tensor
    views: Tree


class Pass(NamedTuple):
    """One pass of a block of models over a batch."""

    params: Tree  # by name, [C, ...]
    stats: Tree  # running statistics by name, [C, ...]: a training pass advances them in place
    training: bool
    shares: Tensor | None = None  # as in Batch
    generators: Sequence[torch.Generator] = ()


class Into(Protocol):
    """Where the gradients of a block's tensors go."""

    def add(self, name: str, gradient: Tensor) -> None:
        """The gradient `[C, ...]` of the tensor with this name."""

    def add_product(self, name: str, a: Tensor, b: Tensor) -> None:
        """The same, where it is the product of `[C, m, k]` and `[C, k, n]`, and the tensor `[C, m, n]`."""


class Layer(Protocol):
    weighted: bool  # it has weights of its own

    def forward(self, x: Tensor, run: Pass) -> tuple[Tensor, Saved]: ...
    def backward(self, g: Tensor, saved: Saved, run: Pass, into: Into, need_input: bool) -> Tensor:
        """The gradient of the input; anything, if it is not needed. It may be written into `g`."""


class Written:
    """Gradients as rows of one buffer `[C, P]`."""

    def __init__(self, layout: Layout, out: Tensor) -> None:
        self._views = layout.views(out)

    def add(self, name: str, gradient: Tensor) -> None:
        self._views[name].copy_(gradient)

    def add_product(self, name: str, a: Tensor, b: Tensor) -> None:
        self._views[name].baddbmm_(a, b, beta=0)


class Stepped:
    """Gradients that move the weights at once, y = decay*y + drift - scale*gradient: tensor by tensor, in place."""

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
        if isinstance(scale, Tensor) and scale.numel() > len(a):  # one for each weight
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
        """The weights, decayed and drifted."""
        y, decay, drift = self._views[name], self._decay(name), self._drift(name)
        if isinstance(decay, Tensor) or decay != 1.0:
            y.mul_(decay)
        return y if drift is None else y.add_(drift)


Constant = TypeVar("Constant", float, None)


def _by_name(layout: Layout, part: Tensor | Constant) -> Callable[[str], Tensor | Constant]:
    """What belongs to each tensor: of a vector `[P]` or of rows `[C, P]` its own part, else the same for all."""
    if not isinstance(part, Tensor):
        return lambda name: part
    if part.shape[-1] == layout.num_params:
        return layout.views(part).__getitem__
    shapes = {entry.name: len(entry.shape) for entry in layout.params}
    return lambda name: part.view(*part.shape[:-1], *([1] * shapes[name]))
