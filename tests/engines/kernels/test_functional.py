"""torch.func compared with autograd, and modules that it does not support."""

from collections.abc import Callable
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from blocks import batch_of, check_gradients, check_outputs, check_steps, models_of, network_of
from fedge.client.network import Network
from fedge.core.registered import Task
from fedge.data.clients import Samples
from fedge.engines.kernels.functional import Functional, try_functional

Make = Callable[[], nn.Module]


class Residual(nn.Module):
    """A residual layer with its own scalar weight."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.scale = layer, nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * self.layer(x)


def tied() -> nn.Module:
    first, second = nn.Linear(5, 5), nn.Linear(5, 5)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second, nn.Linear(5, 3))


NETWORKS: dict[str, Make] = {
    "residual": lambda: nn.Sequential(Residual(nn.Linear(5, 5)), nn.Linear(5, 3)),
    "layernorm": lambda: nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 3)),
    "batchnorm": lambda: nn.Sequential(Residual(nn.BatchNorm1d(5, momentum=0.3)), nn.Linear(5, 3)),
    "batchnorm without parameters": lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, affine=False)),
    "bare layer": lambda: nn.Linear(5, 3),
    "frozen": lambda: nn.Sequential(nn.Linear(5, 4).requires_grad_(False), nn.Tanh(), nn.Linear(4, 3)),
    "tied": tied,
}


def functional_of(network: Network) -> Functional:
    found = try_functional(network, probe(), "it is so")
    assert isinstance(found, Functional), found
    return found


def probe(*shape: int) -> Samples:
    return Samples(torch.zeros(2, *(shape or (5,))), torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize("size", [4, 1])
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_those_of_autograd(name: str, size: int) -> None:
    network = network_of(NETWORKS[name])
    check_gradients(network, functional_of(network), batch_of(network, (5,), size), num_batches=2)


@pytest.mark.parametrize("task", get_args(Task))
def test_every_loss(task: Task) -> None:
    network = network_of(NETWORKS["layernorm"], task)
    target = torch.zeros(2, dtype=torch.int64) if task == "classes" else torch.zeros(2, 3)
    found = try_functional(network, Samples(torch.zeros(2, 5), target), "it is so")
    assert isinstance(found, Functional)
    check_gradients(network, found, batch_of(network, (5,)))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_is_a_gradient_and_a_move(name: str) -> None:
    network = network_of(NETWORKS[name])
    check_steps(network, functional_of(network), lambda: batch_of(network, (5,)))


@pytest.mark.parametrize("name", NETWORKS)
def test_evaluation(name: str) -> None:
    network = network_of(NETWORKS[name])
    check_outputs(network, functional_of(network), batch_of(network, (5,)).samples.x)


def test_penalties_are_those_of_autograd() -> None:
    network = network_of(NETWORKS["residual"])
    check_gradients(network, functional_of(network), batch_of(network, (5,)), lambda f: torch.logsumexp(f, -1) ** 2)


def test_token_indices() -> None:
    network = network_of(lambda: nn.Sequential(nn.Embedding(7, 2), nn.Flatten(), nn.Linear(6, 3)))
    words = Samples(torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, dtype=torch.int64))
    found = try_functional(network, words, "it is so")
    assert isinstance(found, Functional), found
    check_gradients(network, found, batch_of(network, (3,), num_words=7))


def test_a_batch_of_one_leaves_the_statistics() -> None:
    network = network_of(NETWORKS["batchnorm"])
    x, stats = models_of(network)
    _, after = functional_of(network).gradient(x, stats, batch_of(network, (5,), 1), torch.empty_like(x))
    assert torch.equal(after, stats)


def test_description() -> None:
    found = functional_of(network_of(NETWORKS["bare layer"]))
    assert (found.masks, found.random) == (False, False)
    assert found.path == "torch.func, because it is so"


# ---------------------------------------------------------------- unsupported modules


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Counting(nn.Module):
    """Computes something different in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5)), "cannot run it: vmap: called random operation"),
        (lambda: nn.Sequential(nn.Linear(5, 3), Branching()), "cannot run it: vmap: It looks like you're"),
        (lambda: nn.Sequential(nn.Linear(5, 3), Counting()), "and autograd give different gradients"),
        (Unused, "cannot run it: "),
        (lambda: nn.Linear(6, 3), "cannot run it: "),
    ],
    ids=["dropout", "branch", "state", "unused", "shape"],
)
def test_reasons(make: Make, reason: str) -> None:
    found = try_functional(network_of(make), Samples(torch.ones(2, 5), torch.tensor([0, 1])), "it is so")
    assert isinstance(found, str)
    assert found.startswith(f"torch.func {reason}")
    assert "\n" not in found
