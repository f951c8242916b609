"""A block of clients through torch.func: slower than batched kernels, but works for nearly any module."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.modules.batchnorm import _NormBase

from fedge.client.network import Network
from fedge.core.algorithm import Affine, Penalty, moved
from fedge.core.layout import Tree
from fedge.data.clients import Samples
from fedge.engines.kernels.layer import Batch, Weights

_CLOSE = 0.01  # relative tolerance, above rounding errors and far below the error of a module that keeps state


class Functional:
    """A network's module, called with the weights of all clients of a block at once."""

    masks = False
    random = False

    def __init__(self, network: Network, because: str) -> None:
        self._network, self._layout, self._module = network, network.layout, network.module
        self.path = f"torch.func, because {because}"
        norms = {name: part for name, part in self._module.named_modules() if isinstance(part, _NormBase)}
        self._norms = [part for part in norms.values() if part.track_running_stats]
        # Norms count batches in place, which the transforms allow only for tensors created inside them.
        self._counters = [
            f"{name}.num_batches_tracked".lstrip(".") for name, part in norms.items() if part.track_running_stats
        ]

    def gradient(
        self, x: Tensor, stats: Tensor, batch: Batch, out: Tensor, penalty: Penalty | None = None
    ) -> tuple[Tensor, Tensor]:
        self._module.train()
        if batch.samples.y.shape[1] == 1:
            for norm in self._norms:
                norm.eval()
        gradient = grad_and_value(self._loss if penalty is None else self._penalised(penalty), has_aux=True)
        # Statistics are updated in place; the transforms would lose updates of strided views.
        own = {name: view.contiguous().clone() for name, view in self._layout.views(stats, "stats").items()}
        with self._network.constants.kept():
            gradients, (losses, after) = vmap(gradient)(self._layout.views(x), own, *batch.samples)
        for name, view in self._layout.views(out).items():
            view.copy_(gradients[name])
        return losses, torch.cat([value.flatten(1) for value in after.values()], 1) if after else stats

    def step(
        self, weights: Weights, stats: Tensor, batch: Batch, affine: Affine, penalty: Penalty | None = None
    ) -> tuple[Tensor, Tensor]:
        y = weights.y
        gradients = torch.empty_like(y)
        result = self.gradient(y, stats, batch, gradients, penalty)
        y.copy_(moved(y, gradients, affine))
        return result

    @torch.no_grad()
    def outputs(self, x: Tensor, stats: Tensor, inputs: Tensor) -> Tensor:
        self._module.eval()
        found: Tensor = vmap(self._call)(self._layout.views(x), self._layout.views(stats, "stats"), inputs)
        return found

    def span(self, y: Tensor, samples: Sequence[Samples], num_seen: int) -> None:
        return None

    def _loss(self, params: Tree, stats: Tree, x: Tensor, y: Tensor) -> tuple[Tensor, Tree]:
        return self._network.loss(self._call(params, stats, x), y), stats

    def _penalised(self, penalty: Penalty) -> Callable[..., tuple[Tensor, Tree]]:
        def loss(params: Tree, stats: Tree, x: Tensor, y: Tensor) -> tuple[Tensor, Tree]:
            seen: list[Tensor] = []
            hook = self._network.last_layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
            try:
                value, stats = self._loss(params, stats, x, y)
            finally:
                hook.remove()
            return value + penalty(seen[-1]).mean(), stats

        return loss

    def _call(self, params: Tree, stats: Tree, x: Tensor) -> Tensor:
        counters = {name: torch.zeros((), dtype=torch.int64, device=x.device) for name in self._counters}
        outputs: Tensor = functional_call(self._module, {**params, **stats, **counters}, (x,))
        return outputs


def try_functional(network: Network, probe: Samples, because: str) -> Functional | str:
    """Return the model through torch.func, tested on a few samples, or the reason why that fails."""
    found = Functional(network, because)
    # Two clients with different weights, to reveal state that is shared by mistake.
    start = network.place(network.variables)
    x, stats = (torch.stack([value, 0.5 * value]) for value in (start["x"], start["stats"]))
    batch = Batch(Samples(*(torch.stack([part, part]) for part in network.cast(probe))))
    gradients = torch.empty_like(x)
    try:
        found.gradient(x, stats, batch, gradients)
        found.outputs(x, stats, batch.samples.x)
        expected = torch.stack([network.gradient(*row)[1] for row in zip(x, stats, _rows(batch.samples), strict=True)])
    except Exception as error:  # the module's code and the transforms may raise anything
        return f"torch.func cannot run it: {str(error).partition(chr(10))[0] or type(error).__name__}"
    if not (gradients - expected).norm() <= _CLOSE * expected.norm():
        return "torch.func and autograd give different gradients"
    return found


def _rows(samples: Samples) -> list[Samples]:
    return [Samples(x, y) for x, y in zip(*samples, strict=True)]
