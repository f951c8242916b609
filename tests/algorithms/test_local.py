"""Wrappers of local training: prox, weight decay, momentum and FedMAX, by hand and compared with torch."""

from collections.abc import Callable
from math import log

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, relu, softmax

from federation import BUILDS, Federation, dense, mixed, points, slope
from fedge.algorithms.compose import trained
from fedge.algorithms.fedavg import FedAvg, FedMax, FedProx
from fedge.algorithms.local import maxent, momentum, pull
from fedge.algorithms.mfl import FedAvgAdam
from fedge.algorithms.mtfl import mtfl
from fedge.algorithms.scaffold import Scaffold
from fedge.core.algorithm import Build
from fedge.core.errors import ModelError
from fedge.data.clients import Samples

HALF = {"make": slope, "rate": 0.5, "steps": 2}
SEVERAL = ["fedavg", "scaffold", "fedavg_adam", "fedgbo", "mimelite", "pfedme"]


def prox(inner: Build) -> Build:
    return pull(inner, 0.5, to_start=True)


# ---------------------------------------------------------------- prox


@pytest.mark.parametrize("build", [prox(FedAvg().build), trained(FedProx(prox=0.5)), trained(FedAvg(prox=0.5))])
def test_prox_by_hand(build: Build) -> None:
    federation = Federation(build, points(0, 4), **HALF)
    federation.round()
    # y -= (g + (y - 1)/2)/2
    # client 0: g  1, y 0.5; g  0.5 - 0.25, y 0.375
    # client 1: g -3, y 2.5; g -1.5 + 0.75, y 2.875
    assert federation.weight() == 1.625
    federation.round()
    # the same map of the distance to 2: -1 became -0.375
    assert federation.weight() == 2 - 0.375**2


def test_prox_around_scaffold_by_hand() -> None:
    federation = Federation(prox(Scaffold().build), points(0, 4), **HALF)
    federation.round()
    # as above; c_i = x - y is 0.625 and -1.875, c = -0.625
    assert federation.weight() == 1.625
    federation.round()
    # y -= (g + c - c_i + (y - 1.625)/2)/2, c - c_i = -1.25 and 1.25
    # client 0:  1.625 - 1.25, y 1.4375;  1.4375 - 1.25 - 0.09375, y 1.390625
    # client 1: -2.375 + 1.25, y 2.1875; -1.8125 + 1.25 + 0.28125, y 2.328125
    assert federation.weight() == 1.859375


def test_prox_around_fedavg_adam_by_hand() -> None:
    federation = Federation(prox(FedAvgAdam().build), points(0, 4), make=slope, rate=0.1, steps=2)
    federation.round()
    # client 0: g 1, y 0.900000009999999; then g + (y - 1)/2
    #           = 0.850000014999998, m  0.175000001500000, v 0.001721500025500, y 0.800748462933430
    # client 1: g -3, y 1.099999996666667; then g + (y - 1)/2
    #           = -2.850000005000000, m -0.555000000500000, v 0.017113500028500, y 1.199833507651135
    found = {name: federation.state[name].item() for name in ("x", "m", "v", "t")}
    assert found == pytest.approx({"x": 1.000290985292283, "m": -0.1899999995, "v": 0.009417500027, "t": 2}, abs=2e-15)


@pytest.mark.parametrize("name", SEVERAL)
def test_prox_and_mtfl_commute(name: str) -> None:
    one = Federation(prox(mtfl(BUILDS[name], "bn")), mixed(), dtype=torch.float32)
    other = Federation(mtfl(prox(BUILDS[name]), "bn"), mixed(), dtype=torch.float32)
    for cohort in ((0, 1, 2, 3), (1, 3), (0, 2)):
        one.round(cohort)
        other.round(cohort)
    ours, theirs = one.everything(), other.everything()
    assert ours.keys() == theirs.keys()
    for key, value in ours.items():
        assert torch.equal(value, theirs[key]), key


def test_fedprox_costs_five_flops_for_each_parameter() -> None:
    (reply,) = Federation(trained(FedProx()), points(0), **HALF).round().replies
    assert reply.costs.flops.tolist() == [2 * (100 + 5)]


# ---------------------------------------------------------------- momentum and weight decay


def test_momentum_by_hand() -> None:
    federation = Federation(momentum(FedAvg().build, 0.5), points(0, 4), make=slope, rate=0.25, steps=2)
    federation.round()
    # client 0: m  1, y 0.75; m  0.5 + 0.75, y 0.4375
    # client 1: m -3, y 1.75; m -1.5 - 2.25, y 2.6875
    assert federation.weight() == 1.5625
    federation.round()
    # m starts at 0 again: the same map of the distance to 2, -1 to -0.4375
    assert federation.weight() == 2 - 0.4375**2


def test_weight_decay_by_hand() -> None:
    federation = Federation(pull(FedAvg().build, 0.5, to_start=False), points(0, 4), **HALF)
    federation.round()
    # y -= (g + y/2)/2
    # client 0:  1 + 0.5, y 0.25;   0.25 + 0.125, y 0.0625
    # client 1: -3 + 0.5, y 2.25;  -1.75 + 1.125, y 2.5625
    assert federation.weight() == 1.3125


@pytest.mark.parametrize(
    ("options", "theirs"),
    [
        ({"momentum": 0.9}, {"momentum": 0.9}),
        ({"weight_decay": 0.3}, {"weight_decay": 0.3}),
        ({"momentum": 0.9, "weight_decay": 0.3}, {"momentum": 0.9, "weight_decay": 0.3}),
        ({"momentum": 0.9, "weight_decay": 0.3, "prox": 0.5}, {"momentum": 0.9, "weight_decay": 0.3}),
    ],
    ids=lambda options: "+".join(options),
)
def test_a_round_is_one_of_torch_sgd(options: dict[str, float], theirs: dict[str, float]) -> None:
    """With a new optimiser, and so zero momentum, in every round; prox is part of the gradient."""
    federation = Federation(trained(FedAvg(**options)), mixed((10,)), make=dense, steps=4)
    job, no_stats = federation.clients, torch.zeros(0, dtype=torch.float64)
    y = torch.nn.Parameter(job.network.variables["x"].clone())
    samples = job.samples(0, round=1)
    for number in range(1, 4):
        federation.round()
        x, sgd = y.detach().clone(), torch.optim.SGD([y], lr=0.1, **theirs)  # type: ignore[arg-type]
        for (batch,) in job.steps(job.algorithm.works["train"], 0, federation.info._replace(round=number)):
            _, gradient, _ = job.network.gradient(y.detach(), no_stats, Samples(samples.x[batch], samples.y[batch]))
            y.grad = gradient + options.get("prox", 0.0) * (y.detach() - x)
            sgd.step()
        torch.testing.assert_close(federation.state["x"], y.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("wrap", "flops"),
    [
        (lambda build: momentum(build, 0.9), 4),
        (lambda build: pull(build, 0.1, to_start=False), 4),
        (lambda build: pull(momentum(build, 0.9), 0.1, to_start=True), 7),
    ],
)
def test_flops_of_every_change_of_the_step(wrap: Callable[[Build], Build], flops: int) -> None:
    (reply,) = Federation(wrap(FedAvg().build), points(0), **HALF).round().replies
    assert reply.costs.flops.tolist() == [2 * (100 + flops)]


def test_work_without_training_is_unchanged() -> None:
    plain = Federation(BUILDS["dynavg"], mixed()).clients.algorithm.works
    wrapped = Federation(maxent(prox(momentum(BUILDS["dynavg"], 0.9)), 0.1), mixed()).clients.algorithm.works
    assert {name for name, work in wrapped.items() if work.penalty} == {"train"}
    assert {name for name, work in wrapped.items() if work.flops_per_param != plain[name].flops_per_param} == {"train"}


# ---------------------------------------------------------------- FedMAX


def test_the_divergence_by_hand() -> None:
    penalty = Federation(trained(FedMax(maxent=2.0)), mixed(), make=dense).clients.algorithm.works["train"].penalty
    assert penalty is not None
    # softmax is (1/4, 3/4): KL = log(2)/2 + log(2/3)/2; equal features have none
    found = penalty(torch.tensor([[0.0, log(3)], [5.0, 5.0]], dtype=torch.float64))
    assert found.tolist() == pytest.approx([log(4 / 3), 0], abs=1e-15)


def written_out(x: Tensor, samples: Samples, alpha: float) -> Tensor:
    """Return the gradient of FedMAX's loss for `dense`: cross-entropy + alpha*sum(u*log(u/p)), u = 1/6."""
    x = x.clone().requires_grad_()
    first, bias, second, last_bias = x[:48].view(6, 8), x[48:54], x[54:72].view(3, 6), x[72:]
    a = relu(samples.x @ first.T + bias)
    p = softmax(a, -1)
    divergence = (1 / 6 * (log(1 / 6) - p.log())).sum(-1).mean()
    loss = cross_entropy(a @ second.T + last_bias, samples.y) + alpha * divergence
    (gradient,) = torch.autograd.grad(loss, x)
    return gradient


@pytest.mark.parametrize("engine", ["loop", "block"])
def test_fedmax_follows_the_gradient_of_its_loss(engine: str) -> None:
    federation = Federation(trained(FedMax(maxent=0.5)), mixed((4,)), engine, make=dense, steps=2)
    samples, x = federation.clients.samples(0, round=1), federation.clients.network.variables["x"]
    federation.round()
    for _ in range(2):  # the batch is all four samples
        x = x - 0.1 * written_out(x, samples, 0.5)
    torch.testing.assert_close(federation.state["x"], x, rtol=0, atol=1e-12)
    without = Federation(FedAvg().build, mixed((4,)), engine, make=dense, steps=2).rounds(1)
    assert (federation.state["x"] - without.state["x"]).abs().max() > 1e-3


def test_a_linear_model_has_no_features() -> None:
    federation = Federation(trained(FedMax()), points(0), make=slope)
    with pytest.raises(ModelError, match="needs a hidden layer, but the model is linear"):
        federation.round()
