"""On `points`, two steps at rate 1/2 move a client from x to f + (x - f)/4, where f is b shifted by c_i - c."""

from collections.abc import Callable

import pytest
import torch

from federation import Federation, Handmade, dense, mixed, normed, points, slope
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.scaffold import Scaffold

HALF = {"make": slope, "rate": 0.5, "steps": 2}


def variates(federation: Federation) -> list[float]:
    """Return c, then every c_i."""
    own = [federation.clients.kept.read(client)["c_i"].item() for client in range(len(federation.clients.data.sizes))]
    return [federation.state["c"].item(), *own]


def test_option_two_by_hand() -> None:
    federation = Federation(Scaffold().build, points(0, 4), **HALF)
    federation.round()
    assert federation.weight() == 1.75
    # c_i = (x - y)/(K*rate) = x - y: 1 - 0.25 and 1 - 3.25
    assert variates(federation) == [-0.75, 0.75, -2.25]
    federation.round()
    # client 0: c_i - c = 1.5, f = 1.5, y = 1.5 + 0.25/4 = 1.5625
    # client 1: c_i - c = -1.5, f = 2.5, y = 2.5 - 0.75/4 = 2.3125
    assert federation.weight() == 1.9375
    # c_i - c + x - y: 1.5 + 0.1875 and -1.5 - 0.5625
    assert variates(federation) == [-0.1875, 1.6875, -2.0625]


def test_option_one_by_hand() -> None:
    federation = Federation(Scaffold(option="I").build, points(0, 4), **HALF)
    federation.round()
    assert federation.weight() == 1.75
    assert variates(federation) == [-1, 1, -3]  # gradients at x = 1
    federation.round()
    # client 0: f = 0 + 2; client 1: f = 4 - 2; both y = 2 - 0.25/4
    assert federation.weight() == 1.9375
    assert variates(federation) == [-0.25, 1.75, -2.25]  # gradients at x = 1.75


def test_option_one_takes_the_gradient_over_all_samples(crowd: Callable[..., Handmade]) -> None:
    clients = Handmade([crowd((0, 1), (6, 2)).pooled_test()], 1, task="values")
    federation = Federation(Scaffold(option="I").build, clients, make=slope, batch_size=1, steps=1)
    federation.round()
    assert variates(federation)[1] == pytest.approx(-3, abs=1e-15)  # (1 - 0 + 2*(1 - 6))/3


def test_the_server_has_a_step_size() -> None:
    federation = Federation(Scaffold().build, points(0, 4), server_rate=0.5, **HALF)
    federation.round()
    assert federation.weight() == 1.375  # 1 + 0.5*0.75
    assert variates(federation) == [-0.75, 0.75, -2.25]


def test_weighting_only_affects_models(crowd: Callable[..., Handmade]) -> None:
    federation = Federation(Scaffold(weighting="samples").build, crowd((0, 1), (4, 3)), **HALF)
    federation.round()
    assert federation.weight() == 2.5  # 1 + (1*(-0.75) + 3*2.25)/4
    assert variates(federation) == [-0.75, 0.75, -2.25]  # c is a mean over clients


def test_an_absent_client_keeps_its_variate() -> None:
    federation = Federation(Scaffold().build, points(0, 4), **HALF)
    federation.round(cohort=(0,))
    assert federation.weight() == 0.25
    assert variates(federation) == [0.375, 0.75, 0]  # c = (0.75 + 0)/2


@pytest.mark.parametrize("option", ["I", "II"])
def test_c_is_the_mean_of_all_variates(option: str) -> None:
    federation = Federation(Scaffold(option=option).build, mixed(), make=dense)
    for cohort in ((0, 1), (2,), (1, 2, 3), (0, 3), (0, 1, 2, 3)):
        federation.round(cohort)
        own = torch.stack([federation.clients.kept.read(client)["c_i"] for client in range(4)])
        torch.testing.assert_close(federation.state["c"], own.mean(0), rtol=0, atol=1e-14)
    assert federation.state["c"].abs().max() > 0.01


def test_c_stays_the_mean_when_a_client_joins() -> None:
    federation = Federation(Scaffold().build, points(0, 4, 1.75), num_clients=2, **HALF)
    federation.round()
    assert variates(federation) == [-0.75, 0.75, -2.25, 0]  # as above, for two clients
    federation.grow(3)
    assert variates(federation) == [-0.5, 0.75, -2.25, 0]  # (0.75 - 2.25 + 0)/3
    federation.round()
    # x = 1.75 and c_i - c = 1.25, -1.75, 0.5, so f = 1.25, 2.25, 2.25 and x - y = 3/4 of 0.5, -0.5, -0.5
    assert federation.weight() == pytest.approx(1.75 + 0.375 / 3, abs=1e-15)
    # c_i - c + x - y: 1.25 + 0.375, -1.75 - 0.375, 0.5 - 0.375
    assert variates(federation) == pytest.approx([-0.125, 1.625, -2.125, 0.125], abs=1e-15)


@pytest.mark.parametrize("option", ["I", "II"])
def test_without_control_variates_it_equals_fedavg(option: str) -> None:
    scaffold = Federation(Scaffold(option=option).build, mixed(), make=normed).rounds(1)
    fedavg = Federation(FedAvg(weighting="uniform").build, mixed(), make=normed).rounds(1)
    for name in ("x", "stats"):
        torch.testing.assert_close(scaffold.state[name], fedavg.state[name], rtol=0, atol=1e-12)


def test_every_client_counts_its_own_steps(crowd: Callable[..., Handmade]) -> None:
    clients = crowd((0, 1), (4, 2))
    federation = Federation(Scaffold().build, clients, make=slope, rate=0.5, epochs=1, batch_size=1)
    federation.round()
    # client 0: one step, (1 - 0.5)/(1*0.5); client 1: two steps, (1 - 3.25)/(2*0.5)
    assert variates(federation)[1:] == [1, -2.25]
