"""The span kernel of a linear model takes the same steps as one that updates weights."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from federation import BUILDS, Federation, Handmade
from fedge.client.network import Network
from fedge.core.algorithm import Affine, moved
from fedge.core.registered import Task
from fedge.data.clients import Samples
from fedge.engines.kernels.losses import LOSSES
from fedge.engines.kernels.span import SpanKernel

SIZES = (5, 3, 4)
FEATURES, OUTPUTS = 7, 3


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def network_of(task: Task, bias: bool) -> Network:
    return Network(lambda: nn.Sequential(nn.Linear(FEATURES, OUTPUTS, bias=bias)), 1, task, torch.float64)


def samples_of(task: Task) -> list[Samples]:
    classes = torch.arange(max(SIZES)) % OUTPUTS
    targets = {"classes": classes, "labels": torch.eye(OUTPUTS).double()[classes], "values": normal(5, OUTPUTS)}
    return [Samples(normal(n, FEATURES), targets[task][:n]) for n in SIZES]


def affines(num_params: int) -> dict[str, Affine]:
    rows = len(SIZES)
    per_client = torch.tensor([[0.9], [0.8], [1.0]], dtype=torch.float64)
    return {
        "plain": (1.0, None, 0.1),
        "decay": (0.9, None, 0.1),
        "drift of all": (0.9, 0.1 * normal(num_params), 0.1),
        "drift of each": (1.0, 0.1 * normal(rows, num_params), 0.1),
        "by client": (per_client, 0.1 * normal(num_params), per_client / 10),
    }


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("task", ["classes", "labels", "values"])
@pytest.mark.parametrize("kind", affines(1))
def test_steps_are_those_of_autograd(kind: str, task: Task, bias: bool) -> None:
    network, samples = network_of(task, bias), samples_of(task)
    affine = affines(network.layout.num_params)[kind]
    start = normal(len(SIZES), network.layout.num_params)
    span = SpanKernel(network.layout, LOSSES[task], (y := start.clone()), samples)
    assert span.takes(affine)
    expected = list(start)
    # Two steps of all clients, the second with short batches; then one in which only the first two are active.
    batches = [
        ([[0, 1, 1], [2, 0, 1], [3, 3, 0]], (3, 3, 3)),
        ([[4, 2], [1, 0], [2, 0]], (2, 2, 1)),
        ([[3], [0]], (1, 1)),
    ]
    for places, lengths in batches:
        real = torch.arange(len(places[0])) < torch.tensor(lengths)[:, None]
        shares = None if real.all() else real.double() / torch.tensor(lengths)[:, None]
        part = tuple(p[: len(places)] if isinstance(p, Tensor) and p.dim() == 2 else p for p in affine)
        losses = span.step(torch.tensor(places), shares, part)  # type: ignore[arg-type]
        for i, (chosen, length) in enumerate(zip(places, lengths, strict=True)):
            batch = Samples(*(side[chosen[:length]] for side in samples[i]))
            loss, gradient, _ = network.gradient(expected[i], torch.zeros(0), batch)
            own = tuple(p[i] if isinstance(p, Tensor) and p.dim() == 2 else p for p in affine)
            expected[i] = moved(expected[i], gradient, own)  # type: ignore[arg-type]
            torch.testing.assert_close(losses[i], loss, rtol=1e-12, atol=1e-12)
    span.finish()
    torch.testing.assert_close(y, torch.stack(expected), rtol=1e-11, atol=1e-12)


def test_a_step_that_scales_each_weight_is_not_in_the_span() -> None:
    network = network_of("classes", bias=True)
    span = SpanKernel(network.layout, LOSSES["classes"], normal(3, network.layout.num_params), samples_of("classes"))
    assert not span.takes((1.0, None, normal(network.layout.num_params)))
    assert not span.takes((normal(3, network.layout.num_params), None, 0.1))


def test_when_it_pays() -> None:
    assert SpanKernel.pays(15, 80, 2)  # 15**2 = 225 is at most 4*80*2 = 640
    assert not SpanKernel.pays(300, 300, 10)


# Without those that need BatchNorm or features, and CE-FedAvg, whose code depends on rounding noise.
@pytest.mark.parametrize("name", [name for name in BUILDS if "(" not in name and name not in ("ce_fedavg", "fedmax")])
def test_every_algorithm_on_a_linear_model(name: str) -> None:
    """Those that can use the span kernel do; all agree with `loop`."""
    random = np.random.default_rng(2)
    clients = Handmade(
        [Samples(torch.from_numpy(random.standard_normal((n, 8))).float(), torch.arange(n) % 3) for n in (3, 4, 4, 1)],
        3,
    )
    loop, block = (
        Federation(BUILDS[name], clients, engine, make=lambda: nn.Linear(8, 3), steps=4).rounds(2).everything()
        for engine in ("loop", "block")
    )
    for key, value in loop.items():
        torch.testing.assert_close(block[key], value, rtol=1e-9, atol=1e-12, msg=lambda text, key=key: f"{key}: {text}")
