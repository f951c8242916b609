"""Trace an ordinary module and translate it to a chain of batched layers."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from fedge.engines.kernels.convolution import AdaptiveAvgPool2d, AvgPool2d, Conv2d, MaxPool2d
from fedge.engines.kernels.layer import Layer
from fedge.engines.kernels.layers import (
    BatchNorm,
    Dropout,
    Flatten,
    Identity,
    LinearKernel,
    Relu,
    elu,
    gelu,
    leaky_relu,
    sigmoid,
    silu,
    tanh,
)
from fedge.engines.kernels.recurrent import Embedding, Gru, Select


def trace(module: nn.Module) -> fx.Graph | str:
    """Return the computation of a module as a graph of layers and operations, or the reason why it has none."""
    whole = nn.Sequential(module)  # wrapped, because tracing would look inside a module that is itself a layer
    graphs = []
    for training in (False, True):
        try:
            graphs.append(fx.symbolic_trace(whole.train(training)).graph)
        except Exception as error:  # the module's code may raise anything when it is not given a tensor
            problem = str(error).partition("\n")[0] or type(error).__name__
            return f"{type(module).__name__} does not consist of layers only ({problem})"
    graph, other = graphs
    if str(graph) != str(other):
        return f"{type(module).__name__} computes something different in training than in evaluation"
    graph.eliminate_dead_code()
    return graph


class LayerChain:
    """The batched layers of a graph in which each node takes the output of the previous one."""

    def __init__(self, module: nn.Module) -> None:
        self._modules = dict(module.named_modules())
        self.layers: list[Layer] = []
        self.weighted: dict[str, int] = {}  # index in `layers` by module name

    def read(self, graph: fx.Graph) -> str | None:
        """Translate a graph to layers. Returns the reason if a node has no batched layer, else None."""
        value: fx.Node | None = None
        for node in graph.nodes:
            if node.op == "get_attr":
                return f"{_name(node)} is used outside of a layer"
            if node.op == "placeholder":
                value = node
            elif not _is_batch_size(node):
                if value is None or not _takes_only(value, node):
                    return f"{self._kind(node)} takes more than the output of the layer before it"
                if problem := self._add(node, value):
                    return problem
                value = node
        return None

    def _add(self, node: fx.Node, value: fx.Node) -> str | None:
        if type(self._module(value)) is nn.GRU:
            return None if _key(node) == 0 else "only the states of GRU have a batched kernel"
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
        make = _LAYERS.get(type(module))  # exact types: a subclass may compute something different
        if make is None:
            return f"{self._kind(node)} has no batched kernel"
        return make(_prefix(node), module)

    def _module(self, node: fx.Node) -> nn.Module | None:
        """Return the module that a node calls, or an equivalent module for its function."""
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


def in_place(layers: Sequence[Layer]) -> list[Layer]:
    """Return the same chain with in-place ReLU after layers that do not need their output."""
    before = [None, *layers[:-1]]
    return [
        Relu(in_place=True) if isinstance(layer, Relu) and isinstance(previous, _FORGETFUL) else layer
        for previous, layer in zip(before, layers, strict=True)
    ]


def _name(node: fx.Node) -> str:
    """Return the name of the module that a node calls, without the `0.` of the traced wrapper."""
    return str(node.target)[2:]


def _prefix(node: fx.Node) -> str:
    """Return the prefix of the names of a node's tensors."""
    return f"{_name(node)}.".lstrip(".")


def _key(node: fx.Node) -> Any:
    """Return the index that a node applies, without trailing full slices; None if it does not index."""
    if node.target is not operator.getitem:
        return None
    key = node.args[1]
    while isinstance(key, tuple) and key[-1:] == (slice(None),):
        key = key[:-1]
    return key


def _takes_only(value: fx.Node, node: fx.Node) -> bool:
    """Return whether a node takes this value as its first and only input, apart from the batch size."""
    others = [n for n in node.all_input_nodes if n is not value]
    return node.args[:1] == (value,) and (not others or (node.target in _RESHAPES and all(map(_is_batch_size, others))))


def _is_batch_size(node: Any) -> bool:
    """Return whether a node is the batch size of some value in the chain; all values have the same."""
    match node:
        case fx.Node(target="size", args=(_, 0)):
            return True
        case fx.Node(target=builtins.getattr, args=(_, "shape")):  # an intermediate result
            return True
        case fx.Node(target=operator.getitem, args=(before, 0)):
            return _is_batch_size(before)
    return False


Make = Callable[[str, Any], Layer | str]
"""(prefix of the tensors' names, module) -> its layer, or the reason why there is none."""


def _checked(kind: Any) -> Make:
    """Return a factory for a layer that first checks for unsupported options."""
    return lambda prefix, module: kind.reason_against(module) or kind(prefix, module)


_LAYERS: dict[type, Make] = {
    nn.Identity: lambda _, __: Identity(),
    nn.Flatten: _checked(Flatten),
    nn.Linear: LinearKernel,
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
"""Functions, and methods by name, with the equivalent module, which is made with the same arguments."""

_RESHAPES = (torch.reshape, "reshape", "view")
_FORGETFUL = (LinearKernel, BatchNorm, Conv2d, MaxPool2d, AvgPool2d, AdaptiveAvgPool2d)
"""Layers that neither save their output nor return their input or saved tensors as output."""
