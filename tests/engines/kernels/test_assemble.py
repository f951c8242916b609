"""Which modules have kernels, and the reasons given for the others."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as f

from blocks import SIZES, batch_of, check_gradients, check_outputs, kernels_of, network_of
from fedge.data.clients import Samples
from fedge.engines.kernels.assemble import assemble
from fedge.engines.kernels.functional import Functional
from fedge.models.convolutional import Cifar100Cnn, CifarCnn, DynavgCnn, FemnistCnn, HflCnn, MnistCnn, MtflCnn
from fedge.models.dense import BagOfWords, FemnistDnn, Linear, Logistic, Mnist2nn, Mtfl2nn, Nn
from fedge.models.mobilenet import MobilenetV2
from fedge.models.model import Model
from fedge.models.recurrent import ShakespeareGru

Make = Callable[[], nn.Module]
PROBE = Samples(torch.ones(2, 5), torch.tensor([0, 1]))


class Own(nn.Module):
    """Layers combined by a function."""

    def __init__(self, forward: Callable[[Any, Tensor], Any], **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.function = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def two_layers(forward: Callable[[Any, Tensor], Any], **layers: nn.Module) -> Make:
    """Layers not in call order: the features are the inputs of the one defined last."""
    return lambda: Own(forward, last=nn.Linear(4, 3), first=nn.Linear(5, 4), **layers)


def of_images(forward: Callable[[Any, Tensor], Any]) -> Make:
    return lambda: Own(forward, conv=nn.Conv2d(1, 2, 3), linear=nn.Linear(8, 3))


def of_words(forward: Callable[[Any, Tensor], Any]) -> Make:
    return lambda: Own(
        forward, embedding=nn.Embedding(7, 2), gru=nn.GRU(2, 4, batch_first=True), linear=nn.Linear(4, 3)
    )


# ---------------------------------------------------------------- chains of layers


CHAINS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "layer": (lambda: nn.Linear(5, 3), (5,)),
    "nested": (
        lambda: nn.Sequential(
            nn.Flatten(), nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.BatchNorm1d(4), nn.ReLU())), nn.Linear(4, 3)
        ),
        (4,),
    ),
    "user-defined module": (
        lambda: nn.Sequential(two_layers(lambda own, x: own.last(own.first(x)))(), nn.Linear(3, 3)),
        (5,),
    ),
    "no dropout": (lambda: nn.Sequential(nn.Linear(5, 3), nn.Dropout(0)), (5,)),
    "relu": (
        two_layers(
            lambda own, x: own.last(f.silu(torch.relu(f.relu(own.first(x), inplace=True).tanh().relu())).relu_())
        ),
        (5,),
    ),
    "functions": (two_layers(lambda own, x: own.last(f.silu(torch.sigmoid(own.first(x).tanh())).contiguous())), (5,)),
    "options": (
        two_layers(
            lambda own, x: own.last(f.gelu(f.elu(f.leaky_relu(own.first(x), 0.2), alpha=0.5), approximate="tanh"))
        ),
        (5,),
    ),
    "flatten": (two_layers(lambda own, x: own.last(own.first(torch.flatten(x.flatten(2), 1)))), (1, 1, 5)),
    "view": (two_layers(lambda own, x: own.last(own.first(x.view(x.size(0), -1)))), (1, 5)),
    "reshape": (two_layers(lambda own, x: own.last(own.first(x).reshape((x.shape[0], -1)))), (5,)),
    "max pool": (of_images(lambda own, x: own.linear(f.max_pool2d(f.relu(own.conv(x)), 2, 2).flatten(1))), (1, 6, 6)),
    "average pool": (of_images(lambda own, x: own.linear(f.avg_pool2d(own.conv(x), 2).flatten(1))), (1, 6, 6)),
    "adaptive pool": (
        of_images(lambda own, x: own.linear(f.adaptive_avg_pool2d(own.conv(x), 2).flatten(1).relu())),
        (1, 5, 5),
    ),
    "sequence": (lambda: Own(lambda own, x: own.linear(x)[:, 1], linear=nn.Linear(5, 3)), (2, 5)),
}


@pytest.mark.parametrize("sizes", [None, SIZES], ids=["full", "padded"])
@pytest.mark.parametrize("name", CHAINS)
def test_chains_have_kernels(name: str, sizes: tuple[int, ...] | None) -> None:
    make, shape = CHAINS[name]
    network = network_of(make)
    check_gradients(network, kernels_of(network), batch_of(network, shape, sizes=sizes))
    check_outputs(network, kernels_of(network), batch_of(network, shape).samples.x)


@pytest.mark.parametrize("key", [(slice(None), -1), (slice(None), -1, slice(None)), (slice(None), 1)])
def test_the_states_of_a_gru(key: tuple[object, ...]) -> None:
    def forward(own: Any, x: Tensor) -> Tensor:
        states, _ = own.gru(own.embedding(x))
        return own.linear(states[key])

    network = network_of(of_words(forward))
    batch = batch_of(network, (3,), sizes=SIZES, num_words=7)
    check_gradients(network, kernels_of(network), batch)
    check_outputs(network, kernels_of(network), batch.samples.x)


def test_features_are_inputs_of_the_last_layer_by_order_of_definition() -> None:
    """As in `Network.last_layer`; here it is called first, apart from `before`."""
    make = two_layers(lambda own, x: own.last(torch.tanh(own.first(own.before(x)))), before=nn.Linear(5, 5))

    def reordered() -> nn.Module:
        module = make()
        before = module._modules.pop("before")
        module._modules = {"before": before, **module._modules}
        return module

    network = network_of(reordered)
    assert network.last_layer is network.module.first
    check_gradients(network, kernels_of(network), batch_of(network, (5,)), lambda x: (x**2).sum(-1))


def test_random_numbers() -> None:
    assert kernels_of(network_of(lambda: nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.1)))).random
    assert not kernels_of(network_of(CHAINS["no dropout"][0])).random


# ---------------------------------------------------------------- modules without kernels


class Doubled(nn.Linear):
    """Computes something different from the layer it inherits from."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def repeated() -> nn.Module:
    layer = nn.Linear(5, 5)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(5, 3))


def shared_relu() -> nn.Module:
    relu = nn.ReLU()
    return nn.Sequential(nn.Linear(5, 4), relu, nn.Linear(4, 4), relu, nn.Linear(4, 3))


def tied() -> nn.Module:
    first, second = nn.Linear(5, 5), nn.Linear(5, 5)
    second.weight = first.weight
    return nn.Sequential(first, nn.ReLU(), second, nn.Linear(5, 3))


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(5, 3))
    module[0].register_forward_hook(lambda layer, inputs, output: 2 * output)
    return module


def in_training(own: nn.Module, x: Tensor) -> Tensor:
    return own.last(own.first(x) if own.training else own.first(x).relu())


def of_state(own: Any, x: Tensor) -> Tensor:
    return own.linear(own.gru(own.embedding(x))[1][0])


def between(layer: nn.Module) -> Make:
    return lambda: nn.Sequential(nn.Linear(5, 4), layer, nn.Linear(4, 3))


WITHOUT: dict[str, tuple[Make, str]] = {
    "layer": (between(nn.LayerNorm(4)), "LayerNorm has no batched kernel"),
    "subclass": (lambda: Doubled(5, 3), "weight is used outside of a layer"),
    "operation": (two_layers(lambda own, x: own.last(torch.exp(own.first(x)))), "exp has no batched kernel"),
    "method": (two_layers(lambda own, x: own.last(own.first(x).abs())), "abs has no batched kernel"),
    "sum": (
        two_layers(lambda own, x: own.last(own.first(x) + own.first(x))),
        "Linear takes more than the output of the layer before it",
    ),
    "view of other sizes": (
        two_layers(lambda own, x: own.last(own.first(x).view(-1, 4))),
        "view has no batched kernel",
    ),
    "shape by name": (
        two_layers(lambda own, x: own.last(torch.reshape(own.first(x), shape=(-1, 4)))),
        "reshape has no batched kernel",
    ),
    "axis by the batch": (
        two_layers(lambda own, x: own.last(own.first(x).flatten(x.size(0) - 1))),
        "sub takes more than the output of the layer before it",
    ),
    "axis is the batch": (
        two_layers(lambda own, x: own.last(own.first(x).flatten(x.size(0)))),
        "flatten takes more than the output of the layer before it",
    ),
    "item": (two_layers(lambda own, x: own.last(own.first(x))[:, 0:3]), "getitem has no batched kernel"),
    "sizes": (
        two_layers(lambda own, x: own.last(own.first(x)) / x.size(1)),
        "size takes more than the output of the layer before it",
    ),
    "branch": (
        two_layers(lambda own, x: own.last(own.first(x)) if x.sum() > 0 else x[:, :3]),
        "Own does not consist of layers only (symbolically traced variables cannot be used as inputs to control flow)",
    ),
    "another mode": (two_layers(in_training), "Own computes something different in training than in evaluation"),
    "functional dropout": (
        two_layers(lambda own, x: own.last(f.dropout(own.first(x), training=own.training))),
        "Own computes something different in training than in evaluation",
    ),
    "used twice": (
        lambda: Own(lambda own, x: own.b(own.a(own.a(x))), a=nn.Linear(5, 5), b=nn.Linear(5, 3)),
        "layer a is used twice",
    ),
    "not used": (two_layers(lambda own, x: own.last(own.first(x)), other=nn.Linear(1, 1)), "layer other is not used"),
    "repeated": (repeated, "some parameters are shared between layers"),
    "tied": (tied, "some parameters are shared between layers"),
    "frozen": (
        lambda: nn.Sequential(nn.Linear(5, 4).requires_grad_(False), nn.Linear(4, 3)),
        "some parameters are frozen",
    ),
    "hook": (hooked, "some layers have hooks"),
    "batchnorm": (
        between(nn.BatchNorm1d(4, track_running_stats=False)),
        "BatchNorm1d without running statistics has no batched kernel",
    ),
    "flatten": (between(nn.Flatten(0)), "Flatten with start_dim 0 has no batched kernel"),
    "dropout": (between(nn.Dropout(1)), "Dropout with p = 1 has no batched kernel"),
    "two outputs": (
        two_layers(lambda own, x: (own.last(own.first(x)), x)),
        "output takes more than the output of the layer before it",
    ),
    "last state": (of_words(of_state), "only the states of GRU have a batched kernel"),
    "states and last state": (
        of_words(lambda own, x: own.gru(own.embedding(x))),
        "only the states of GRU have a batched kernel",
    ),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(1, 1, 1, padding_mode="circular")),
        "Conv2d with padding_mode circular has no batched kernel",
    ),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_layers_without_kernels_are_named(name: str) -> None:
    make, reason = WITHOUT[name]
    found = assemble(network_of(make), PROBE)
    path = found if isinstance(found, str) else found.path.removeprefix("torch.func, because ")
    assert path.startswith(reason)


def test_a_relu_may_be_used_twice() -> None:
    network = network_of(shared_relu)
    check_gradients(network, kernels_of(network), batch_of(network, (5,)))


def test_torch_func_is_the_fallback() -> None:
    network = network_of(WITHOUT["layer"][0])
    found = assemble(network, PROBE)
    assert isinstance(found, Functional)
    assert found.path == "torch.func, because LayerNorm has no batched kernel"
    check_gradients(network, found, batch_of(network, (5,)))


def test_both_reasons_are_given() -> None:
    found = assemble(network_of(lambda: nn.Sequential(nn.Linear(5, 3), nn.AlphaDropout(0.5))), PROBE)
    assert isinstance(found, str)
    assert found.startswith("AlphaDropout has no batched kernel, and torch.func cannot run it: vmap: called random")


# ---------------------------------------------------------------- built-in models


MODELS: list[tuple[Model, tuple[int, ...]]] = [
    *((model(), (1, 3, 3)) for model in (Logistic, BagOfWords, Linear, Nn, Mnist2nn, FemnistDnn, Mtfl2nn)),
    *((model(), (1, 10, 10)) for model in (FemnistCnn, Cifar100Cnn, MtflCnn)),
    (MtflCnn(dense_norm=True), (3, 10, 10)),
    (MnistCnn(), (1, 5, 4)),
    (CifarCnn(), (3, 3, 3)),
    (DynavgCnn(), (1, 5, 5)),
    (HflCnn(), (1, 16, 16)),
    (ShakespeareGru(units=6), (4,)),
]


@pytest.mark.parametrize(("model", "shape"), MODELS, ids=lambda value: getattr(type(value), "__name__", ""))
def test_built_in_models_have_kernels(model: Model, shape: tuple[int, ...]) -> None:
    task = "values" if isinstance(model, Linear) else "classes"
    network = network_of(lambda: model.build(shape, 3), task)
    kernels = kernels_of(network)
    num_words = 3 if isinstance(model, ShakespeareGru) else None
    check_gradients(network, kernels, batch_of(network, shape, sizes=SIZES, num_words=num_words))
    check_outputs(network, kernels, batch_of(network, shape, num_words=num_words).samples.x)


@pytest.mark.parametrize(("dropout", "kind"), [(0.2, str), (0.0, Functional)])
def test_mobilenet(dropout: float, kind: type) -> None:
    """It has residual connections, so it is not a chain."""
    network = network_of(lambda: MobilenetV2(dropout=dropout).build((1, 8, 8), 3))
    found = assemble(network, Samples(torch.rand(2, 1, 8, 8), torch.tensor([0, 1])))
    assert isinstance(found, kind), found
