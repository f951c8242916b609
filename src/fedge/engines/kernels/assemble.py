"""Turn an ordinary module into a model for a block of clients: batched kernels, or torch.func as a fallback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from fedge.client.network import Network
from fedge.core.algorithm import Affine, Penalty
from fedge.core.layout import Layout, Tree
from fedge.core.registered import Task
from fedge.data.clients import Samples
from fedge.engines.kernels.convolution import swap_pool
from fedge.engines.kernels.functional import try_functional
from fedge.engines.kernels.layer import Batch, Into, Layer, Pass, Stepped, Weights, Written
from fedge.engines.kernels.layer_chain import LayerChain, in_place, trace
from fedge.engines.kernels.layers import Dropout, Flatten, Identity, LinearKernel
from fedge.engines.kernels.losses import LOSSES, penalise
from fedge.engines.kernels.span import SpanKernel


class Batched(Protocol):
    """A model for a block: weights `[C, P]`, statistics `[C, S]`, batches `[C, B, ...]`. Statistics are read-only."""

    masks: bool  # whether it accepts padded batches
    random: bool  # whether it draws random numbers, so that a batch needs generators
    path: str  # how it computes, for display

    def gradient(
        self, x: Tensor, stats: Tensor, batch: Batch, out: Tensor, penalty: Penalty | None = None
    ) -> tuple[Tensor, Tensor]:
        """Write the gradients to `out`, `[C, P]`, and return (loss of each client, updated statistics)."""

    def step(
        self, weights: Weights, stats: Tensor, batch: Batch, affine: Affine, penalty: Penalty | None = None
    ) -> tuple[Tensor, Tensor]:
        """Like `gradient`, but update the weights in place with the gradients."""

    def outputs(self, x: Tensor, stats: Tensor, inputs: Tensor) -> Tensor:
        """Return the models' outputs for inputs `[C, n, ...]`, in evaluation mode."""

    def span(self, y: Tensor, samples: Sequence[Samples], num_seen: int) -> SpanKernel | None:
        """Return a kernel for many steps of linear models; None if it does not apply or would be slower.

        `num_seen` is the number of samples that a client processes, counting repetitions.
        """


class Kernels:
    """A chain of batched layers."""

    masks = True
    path = "batched kernels"

    def __init__(self, layout: Layout, layers: Sequence[Layer], task: Task, last: int) -> None:
        """`last`: the layer whose inputs are the model's features."""
        self._layout, self._layers, self._last = layout, layers, last
        self._loss = LOSSES[task]
        # Layers before the first one with weights need no gradient.
        self._first = next(i for i, layer in enumerate(layers) if layer.weighted)
        self.random = any(isinstance(layer, Dropout) for layer in layers)
        kinds = [type(layer) for layer in layers if not isinstance(layer, Flatten | Identity)]
        self._linear = kinds == [LinearKernel]

    def gradient(
        self, x: Tensor, stats: Tensor, batch: Batch, out: Tensor, penalty: Penalty | None = None
    ) -> tuple[Tensor, Tensor]:
        return self._descend(self._layout.views(x), stats, batch, Written(self._layout, out), penalty)

    def step(
        self, weights: Weights, stats: Tensor, batch: Batch, affine: Affine, penalty: Penalty | None = None
    ) -> tuple[Tensor, Tensor]:
        into = Stepped(self._layout, weights.views, affine)
        return self._descend(weights.views, stats, batch, into, penalty)

    def outputs(self, x: Tensor, stats: Tensor, inputs: Tensor) -> Tensor:
        run = Pass(self._layout.views(x), self._layout.views(stats, "stats"), training=False)
        value = inputs
        for layer in self._layers:
            value, _ = layer.forward(value, run)
        return value

    def span(self, y: Tensor, samples: Sequence[Samples], num_seen: int) -> SpanKernel | None:
        num_outputs, num_inputs = self._layout.params[0].shape if self._linear else (0, 0)
        longest = max(len(each) for each in samples)
        fits = (
            self._linear and samples[0].x[0].numel() == num_inputs and SpanKernel.pays(longest, num_seen, num_outputs)
        )
        return SpanKernel(self._layout, self._loss, y, samples) if fits else None

    def _descend(
        self, params: Tree, stats: Tensor, batch: Batch, into: Into, penalty: Penalty | None
    ) -> tuple[Tensor, Tensor]:
        samples, shares, generators = batch
        stats = stats.clone() if self._layout.num_stats else stats
        run = Pass(params, self._layout.views(stats, "stats"), True, shares, generators)
        value, saved, features = samples.x, [], samples.x
        for i, layer in enumerate(self._layers):
            features = value if i == self._last else features
            value, kept = layer.forward(value, run)
            saved.append(kept)
        losses, g = self._loss(value, samples.y, shares)
        for i in reversed(range(self._first, len(self._layers))):
            g = self._layers[i].backward(g, saved.pop(), run, into, need_input=i > self._first)
            if penalty is not None and i == self._last:
                extra, extra_g = penalise(penalty, features, shares)
                losses, g = losses + extra, g + extra_g
        return losses, stats


def assemble(network: Network, probe: Samples) -> Batched | str:
    """Return the model for blocks of clients, tested on a few samples if necessary, or the reason why there is none."""
    kernels = _kernels(network)
    if isinstance(kernels, Kernels):
        return kernels
    functional = try_functional(network, probe, because=kernels)
    return f"{kernels}, and {functional}" if isinstance(functional, str) else functional


def _kernels(network: Network) -> Kernels | str:
    if problem := _beyond_kernels(network):
        return problem
    graph = trace(network.module)
    if isinstance(graph, str):
        return graph
    chain = LayerChain(network.module)
    if problem := chain.read(graph):
        return problem
    owners = [e.name.rpartition(".")[0] for e in (*network.layout.stats, *network.layout.params)]
    unused = [name for name in owners if name not in chain.weighted]
    if unused:
        return f"layer {unused[0]} is not used"
    layers = in_place(swap_pool(chain.layers))
    return Kernels(network.layout, layers, network.task, last=chain.weighted[owners[-1]])


def _beyond_kernels(network: Network) -> str | None:
    """Return why kernels would compute something different although all layer types are known; None if they do not."""
    occurrences = sum(1 for _ in network.module.named_parameters(remove_duplicate=False))
    if occurrences != len(list(network.module.parameters())):
        return "some parameters are shared between layers"
    if len(network.layout.params) != occurrences:
        return "some parameters are frozen"
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(getattr(part, kind) for part in network.module.modules() for kind in hooks):
        return "some layers have hooks"
    return None
