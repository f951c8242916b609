"""A model for a block of clients, out of an ordinary module: batched kernels, or else torch.func."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from fedge.core.algorithm import Affine, Penalty
from fedge.core.layout import Layout, Tree
from fedge.data.clients import Samples, Task
from fedge.engines.kernels.convolution import AdaptiveAvgPool2d, AvgPool2d, Conv2d, MaxPool2d, swap_pool
from fedge.engines.kernels.functional import try_functional
from fedge.engines.kernels.layer import Batch, Into, Layer, Pass, Stepped, Written
from fedge.engines.kernels.layers import (
    BatchNorm,
    Dropout,
    Flatten,
    Identity,
    Linear,
    Relu,
    elu,
    gelu,
    leaky_relu,
    sigmoid,
    silu,
    tanh,
)
from fedge.engines.kernels.losses import LOSSES, penalise
from fedge.engines.kernels.recurrent import Embedding, Gru, Select
from fedge.engines.kernels.span import Span
from fedge.engines.network import Network


class Batched(Protocol):
    """A model for a block: weights `[C, P]`, statistics `[C, S]`, batches `[C, B, ...]`. Statistics are not changed."""

    masks: bool  # it takes batches with padding
    random: bool  # it draws random numbers: a batch needs generators
    path: str  # how it computes, for people

    def gradient(
        self, x: Tensor, stats: Tensor, batch: Batch, out: Tensor, penalty: Penalty | None = None
    ) -> tuple[Tensor, Tensor]:
        """(loss of each client, statistics after it); the gradients are written into `out`, `[C, P]`."""

    def step(
        self, y: Tensor, stats: Tensor, batch: Batch, affine: Affine, penalty: Penalty | None = None
    ) -> tuple[Tensor, Tensor]:
        """The same, but the gradients move `y` in place."""

    def outputs(self, x: Tensor, stats: Tensor, inputs: Tensor) -> Tensor:
        """What the models say of inputs `[C, n, ...]`, in evaluation mode."""

    def span(self, y: Tensor, samples: Sequence[Samples], num_seen: int) -> Span | None:
        """Steps of linear models, where that pays, if a client looks at samples so many times."""


class Kernels:
    """A chain of batched layers."""

    masks = True
    path = "batched kernels"

    def __init__(self, layout: Layout, layers: Sequence[Layer], task: Task, last: int) -> None:
        """`last`: the layer whose inputs are the model's features."""
        self._layout, self._layers, self._last = layout, layers, last
        self._loss = LOSSES[task]
        # Nothing before the first layer with weights needs a gradient.
        self._first = next(i for i, layer in enumerate(layers) if layer.weighted)
        self.random = any(isinstance(layer, Dropout) for layer in layers)
        kinds = [type(layer) for layer in layers if not isinstance(layer, Flatten | Identity)]
        self._linear = kinds == [Linear]
        self._moving: tuple[Tensor, Tree] | None = None  # what the last step moved, and its tensors

    def gradient(
        self, x: Tensor, stats: Tensor, batch: Batch, out: Tensor, penalty: Penalty | None = None
    ) -> tuple[Tensor, Tensor]:
        return self._descend(self._layout.views(x), stats, batch, Written(self._layout, out), penalty)

    def step(
        self, y: Tensor, stats: Tensor, batch: Batch, affine: Affine, penalty: Penalty | None = None
    ) -> tuple[Tensor, Tensor]:
        if self._moving is None or self._moving[0] is not y:  # the same in every step of a block
            self._moving = y, self._layout.views(y)
        views = self._moving[1]
        return self._descend(views, stats, batch, Stepped(self._layout, views, affine), penalty)

    def outputs(self, x: Tensor, stats: Tensor, inputs: Tensor) -> Tensor:
        run = Pass(self._layout.views(x), self._layout.views(stats, "stats"), training=False)
        value = inputs
        for layer in self._layers:
            value, _ = layer.forward(value, run)
        return value

    def span(self, y: Tensor, samples: Sequence[Samples], num_seen: int) -> Span | None:
        num_outputs, num_inputs = self._layout.params[0].shape if self._linear else (0, 0)
        longest = max(len(each) for each in samples)
        fits = self._linear and samples[0].x[0].numel() == num_inputs and Span.pays(longest, num_seen, num_outputs)
        return Span(self._layout, self._loss, y, samples) if fits else None

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
    """A network for blocks of clients, tried out on a few samples if need be; or the reason why there is none."""
    kernels = _kernels(network)
    if isinstance(kernels, Kernels):
        return kernels
    functional = try_functional(network, probe, because=kernels)
    return f"{kernels}, and {functional}" if isinstance(functional, str) else functional


def _kernels(network: Network) -> Kernels | str:
    if problem := _beyond_kernels(network):
        return problem
    graph = _trace(network.module)
    if isinstance(graph, str):
        return graph
    chain = _Chain(network.module)
    if problem := chain.read(graph):
        return problem
    owners = [e.name.rpartition(".")[0] for e in (*network.layout.stats, *network.layout.params)]
    unused = [name for name in owners if name not in chain.weighted]
    if unused:
        return f"layer {unused[0]} is not used"
    layers = _in_place(swap_pool(chain.layers))
    return Kernels(network.layout, layers, network.task, last=chain.weighted[owners[-1]])


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


def _in_place(layers: Sequence[Layer]) -> list[Layer]:
    """The same chain, with ReLU overwriting the output of a layer that does not keep it."""
    before = [None, *layers[:-1]]
    return [
        Relu(in_place=True) if isinstance(layer, Relu) and isinstance(previous, _FORGETFUL) else layer
        for previous, layer in zip(before, layers, strict=True)
    ]


def _trace(module: nn.Module) -> fx.Graph | str:
    """What a module computes, as a graph of layers and operations."""
    whole = nn.Sequential(module)  # a module that is a layer itself would be looked into
    graphs = []
    for training in (False, True):
        try:
            graphs.append(fx.symbolic_trace(whole.train(training)).graph)
        except Exception as error:  # whatever the module's own code may raise when it is not given a tensor
            problem = str(error).partition("\n")[0] or type(error).__name__
            return f"{type(module).__name__} is not made of layers alone ({problem})"
    graph, other = graphs
    if str(graph) != str(other):
        return f"{type(module).__name__} itself does something else in training than in evaluation"
    graph.eliminate_dead_code()
    return graph


class _Chain:
    """The layers of a graph in which each node takes what the one before it gave."""

    def __init__(self, module: nn.Module) -> None:
        self._modules = dict(module.named_modules())
        self.layers: list[Layer] = []
        self.weighted: dict[str, int] = {}  # places in `layers` by the module's name

    def read(self, graph: fx.Graph) -> str | None:
        """Makes the layers of the graph; says what has none."""
        value: fx.Node | None = None
        for node in graph.nodes:
            if node.op == "get_attr":
                return f"{_name(node)} is used outside of a layer"
            if node.op == "placeholder":
                value = node
            elif not _is_batch_size(node):
                if value is None or not _takes_only(value, node):
                    return f"{self._kind(node)} does not take just what the layer before it gives"
                if problem := self._add(node, value):
                    return problem
                value = node
        return None

    def _add(self, node: fx.Node, value: fx.Node) -> str | None:
        if type(self._module(value)) is nn.GRU:
            return None if _key(node) == 0 else "GRU has a batched kernel for its states alone"
        if node.op == "output":
            return None
        if _key(node) == (slice(None), -1) and _key(value) == 0 and isinstance(self.layers[-1], Gru):
            gru: Any = value.args[0]
            self.layers[-1] = Gru(_prefix(gru), self._modules[_name(gru)], last=True)
            return None
        layer = self._layer(node)
        if isinstance(layer, str):
            return layer
        if layer.weighted:
            if (name := _name(node)) in self.weighted:
                return f"layer {name} is used twice"
            self.weighted[name] = len(self.layers)
        self.layers.append(layer)
        return None

    def _layer(self, node: fx.Node) -> Layer | str:
        match _key(node):
            case (slice(start=None, stop=None, step=None), int(place)):
                return Select(place)
        module = self._module(node)
        make = _LAYERS.get(type(module))  # exact types: a subclass may compute something else
        if make is None:
            return f"{self._kind(node)} has no batched kernel"
        return make(_prefix(node), module)

    def _module(self, node: fx.Node) -> nn.Module | None:
        """The module that a node calls, or one that does what the node does."""
        if node.op == "call_module":
            return self._modules[_name(node)] if len(node.args) == 1 and not node.kwargs else None
        if node.target in _RESHAPES:
            match node.args:
                case (_, size, -1) | (_, (size, -1)) if _is_batch_size(size):
                    return nn.Flatten()
        make = _FUNCTIONS.get(node.target)
        return make(*node.args[1:], **node.kwargs) if make else None

    def _kind(self, node: fx.Node) -> str:
        if node.op == "call_module":
            return type(self._modules[_name(node)]).__name__
        return str(getattr(node.target, "__name__", node.target))


def _name(node: fx.Node) -> str:
    """Of the module that a node calls, without the `0.` of the whole that was traced."""
    return str(node.target)[2:]


def _prefix(node: fx.Node) -> str:
    """Of the names of its tensors."""
    return f"{_name(node)}.".lstrip(".")


def _key(node: fx.Node) -> Any:
    """What a node takes of the value before it; full slices at the end mean nothing. None, if it is no item."""
    if node.target is not operator.getitem:
        return None
    key = node.args[1]
    while isinstance(key, tuple) and key[-1:] == (slice(None),):
        key = key[:-1]
    return key


def _takes_only(value: fx.Node, node: fx.Node) -> bool:
    """Whether a node is a function of this value alone, given first; it may be told the size of the batch."""
    others = [n for n in node.all_input_nodes if n is not value]
    return node.args[:1] == (value,) and (not others or (node.target in _RESHAPES and all(map(_is_batch_size, others))))


def _is_batch_size(node: Any) -> bool:
    """Of any value in the chain: they all have the same."""
    match node:
        case fx.Node(target="size", args=(_, 0)):
            return True
        case fx.Node(target=builtins.getattr, args=(_, "shape")):  # on the way to it
            return True
        case fx.Node(target=operator.getitem, args=(before, 0)):
            return _is_batch_size(before)
    return False


Make = Callable[[str, Any], Layer | str]
"""(prefix of the tensors' names, module) -> its layer, or the reason why there is none."""


def _checked(kind: Any) -> Make:
    """A kind of layer that names the options it does not know."""
    return lambda prefix, module: kind.reason_against(module) or kind(prefix, module)


_LAYERS: dict[type, Make] = {
    nn.Identity: lambda _, __: Identity(),
    nn.Flatten: _checked(Flatten),
    nn.Linear: Linear,
    nn.ReLU: lambda _, __: Relu(),
    nn.Tanh: lambda _, __: tanh(),
    nn.Sigmoid: lambda _, __: sigmoid(),
    nn.SiLU: lambda _, __: silu(),
    nn.LeakyReLU: lambda _, module: leaky_relu(module.negative_slope),
    nn.ELU: lambda _, module: elu(module.alpha),
    nn.GELU: lambda _, module: gelu(module.approximate),
    nn.Dropout: lambda prefix, module: _checked(Dropout)(prefix, module) if module.p else Identity(),
    nn.BatchNorm1d: _checked(BatchNorm),
    nn.BatchNorm2d: _checked(BatchNorm),
    nn.Conv2d: _checked(Conv2d),
    nn.MaxPool2d: _checked(MaxPool2d),
    nn.AvgPool2d: AvgPool2d,
    nn.AdaptiveAvgPool2d: AdaptiveAvgPool2d,
    nn.Embedding: _checked(Embedding),
    nn.GRU: _checked(Gru),
}

_FUNCTIONS: dict[Any, Callable[..., nn.Module]] = {
    **dict.fromkeys((torch.relu, torch.relu_, functional.relu, "relu", "relu_"), nn.ReLU),
    **dict.fromkeys((torch.tanh, functional.tanh, "tanh"), nn.Tanh),
    **dict.fromkeys((torch.sigmoid, functional.sigmoid, "sigmoid"), nn.Sigmoid),
    **dict.fromkeys((torch.flatten, "flatten"), lambda start_dim=0, end_dim=-1: nn.Flatten(start_dim, end_dim)),
    functional.max_pool2d: nn.MaxPool2d,
    functional.avg_pool2d: nn.AvgPool2d,
    functional.adaptive_avg_pool2d: nn.AdaptiveAvgPool2d,
    functional.leaky_relu: nn.LeakyReLU,
    functional.elu: nn.ELU,
    functional.gelu: nn.GELU,
    functional.silu: nn.SiLU,
    "contiguous": nn.Identity,
}
"""Functions, and methods by name, with the module that does the same; what they are given, it is made with."""

_RESHAPES = (torch.reshape, "reshape", "view")
_FORGETFUL = (Linear, BatchNorm, Conv2d, MaxPool2d, AvgPool2d, AdaptiveAvgPool2d)
"""Layers that do not keep their output, nor give their input or what they keep of it as such."""
