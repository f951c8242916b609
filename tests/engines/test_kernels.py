"""Batched kernels against autograd: every layer, both losses, rows with weights of their own."""

from collections.abc import Callable
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from fedge.core.algorithm import Penalty
from fedge.data.clients import Samples, Task
from fedge.engines.kernels.assemble import Kernels, assemble
from fedge.engines.network import Network

ROWS, EXACT = 3, {"rtol": 0, "atol": 1e-10}

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(5, 3)), (5,)),
    "linear without bias": (lambda: nn.Sequential(nn.Linear(5, 3, bias=False)), (5,)),
    "flatten": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(8, 3)), (2, 4)),
    "flatten in the middle": (lambda: nn.Sequential(nn.Linear(5, 4), nn.Flatten(), nn.Linear(4, 3)), (5,)),
    "relu": (lambda: nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)), (5,)),
    "relu in place": (lambda: nn.Sequential(nn.Linear(5, 4), nn.ReLU(inplace=True), nn.Linear(4, 3)), (5,)),
    "relu first": (lambda: nn.Sequential(nn.ReLU(), nn.Linear(5, 3)), (5,)),
    "batchnorm": (lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), (5,)),
    "batchnorm without parameters": (
        lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 3)),
        (5,),
    ),
    "batchnorm first": (lambda: nn.Sequential(nn.BatchNorm1d(5, eps=0.1, momentum=0.3), nn.Linear(5, 3)), (5,)),
    "batchnorm last": (lambda: nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)), (5,)),
    "nested": (
        lambda: nn.Sequential(
            nn.Flatten(), nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.BatchNorm1d(4), nn.ReLU())), nn.Linear(4, 3)
        ),
        (4,),
    ),
}


def network_of(make: Callable[[], nn.Module], task: Task = "classes") -> Network:
    return Network(make, 1, task, torch.float64)


def kernels_of(network: Network) -> Kernels:
    kernels = assemble(network)
    assert isinstance(kernels, Kernels), kernels
    return kernels


def rows_of(network: Network, shape: tuple[int, ...], size: int) -> tuple[Tensor, Tensor, Samples]:
    """Weights, statistics and batches of three clients that have nothing in common."""
    chance = torch.Generator().manual_seed(5)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=chance, dtype=torch.float64)

    x = network.variables["x"] + 0.3 * normal(ROWS, network.layout.num_params)
    stats = network.variables["stats"] + 0.3 * normal(ROWS, network.layout.num_stats).abs()
    target = torch.randint(0, 3, (ROWS, size), generator=chance)
    values = normal(ROWS, size, 3)
    targets = {"classes": target, "labels": (values > 0).to(torch.float64), "values": values}
    return x, stats, Samples(normal(ROWS, size, *shape), targets[network.task])


def compare(network: Network, shape: tuple[int, ...], size: int, penalty: Penalty | None = None) -> None:
    x, stats, batch = rows_of(network, shape, size)
    out = torch.full_like(x, float("nan"))  # all of it must be written
    losses, after = kernels_of(network).gradient(x, stats, batch, out, penalty)
    for i in range(ROWS):
        loss, gradient, stats_after = network.gradient(x[i], stats[i], Samples(batch.x[i], batch.y[i]), penalty)
        torch.testing.assert_close(losses[i], loss, **EXACT)
        torch.testing.assert_close(out[i], gradient, **EXACT)
        torch.testing.assert_close(after[i], stats_after, **EXACT)


@pytest.mark.parametrize("task", get_args(Task))
@pytest.mark.parametrize("layer", LAYERS)
def test_kernels_agree_with_autograd(layer: str, task: Task) -> None:
    make, shape = LAYERS[layer]
    compare(network_of(make, task), shape, size=4)


@pytest.mark.parametrize("layer", [name for name in LAYERS if "batchnorm" in name])
def test_a_batch_of_one_is_normalised_by_the_running_statistics(layer: str) -> None:
    make, shape = LAYERS[layer]
    network = network_of(make)
    compare(network, shape, size=1)
    x, stats, batch = rows_of(network, shape, 1)
    _, after = kernels_of(network).gradient(x, stats, batch, torch.empty_like(x))
    assert torch.equal(after, stats)


def test_weights_and_statistics_are_not_changed() -> None:
    network = network_of(*LAYERS["batchnorm"][:1])
    x, stats, batch = rows_of(network, (5,), 4)
    before = x.clone(), stats.clone()
    _, after = kernels_of(network).gradient(x, stats, batch, torch.empty_like(x))
    assert torch.equal(x, before[0])
    assert torch.equal(stats, before[1])
    assert not torch.equal(after, stats)


# ---------------------------------------------------------------- which networks have kernels


class Doubled(nn.Linear):
    """Not the layer it inherits from."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        (nn.Tanh(), "Tanh"),
        (nn.Dropout(0.5), "Dropout"),
        (nn.LayerNorm(4), "LayerNorm"),
        (nn.BatchNorm1d(4, track_running_stats=False), "BatchNorm1d"),
        (nn.Flatten(0), "Flatten"),
        (nn.ModuleList(), "ModuleList"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_a_layer_without_kernel_is_named(layer: nn.Module, named: str) -> None:
    network = network_of(lambda: nn.Sequential(nn.Linear(5, 4), layer, nn.Linear(4, 3)))
    assert assemble(network) == f"{named} has no batched kernel"


def test_a_network_of_ones_own_is_named() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 3)

    assert assemble(network_of(Own)) == "Own has no batched kernel"


def test_frozen_parameters_have_no_kernels() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 4).requires_grad_(False), nn.Linear(4, 3))

    assert assemble(network_of(make)) == "some parameters are frozen"


def shared_relu() -> nn.Module:
    relu = nn.ReLU()
    return nn.Sequential(nn.Linear(5, 4), relu, nn.Linear(4, 4), relu, nn.Linear(4, 3))


def repeated() -> nn.Module:
    layer = nn.Linear(5, 5)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(5, 3))


def tied() -> nn.Module:
    first, second = nn.Linear(5, 5), nn.Linear(5, 5)
    second.weight = first.weight
    return nn.Sequential(first, nn.ReLU(), second, nn.Linear(5, 3))


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(5, 3))
    module[0].register_forward_hook(lambda layer, inputs, output: 2 * output)
    return module


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (shared_relu, (5,)),
        (repeated, (5,)),
        (tied, (5,)),
        (lambda: nn.Sequential(Doubled(5, 3)), (5,)),
        (hooked, (5,)),
        (lambda: nn.Linear(5, 3), (5,)),
        (lambda: nn.Sequential(nn.Linear(5, 2), nn.Flatten(), nn.Linear(8, 3)), (4, 5)),
    ],
    ids=["shared relu", "repeated layer", "tied weights", "subclass", "hook", "bare linear", "linear on matrices"],
)
def test_kernels_are_right_or_refused(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    network = network_of(make)
    if isinstance(assemble(network), Kernels):
        compare(network, shape, size=4)
