"""MFL and FedAvg-Adam. Expected numbers follow the recursion step by step, with 15 digits."""

from collections.abc import Callable
from math import sqrt

import pytest
import torch

from federation import Federation, Handmade, dense, mixed, points, slope
from fedge.algorithms.mfl import FedAvgAdam, Mfl
from fedge.core.algorithm import Costs, Reply


def scalars(federation: Federation) -> dict[str, float]:
    return {name: federation.state[name].item() for name in ("x", "m", "v", "t")}


def test_presets() -> None:
    names = ("beta", "beta2", "epsilon", "v0", "bias_correction", "weighting")
    assert [getattr(Mfl(), name) for name in names] == [0.9, 0.99, 1e-3, 1.0, False, "uniform"]
    assert [getattr(FedAvgAdam(), name) for name in names] == [0.9, 0.999, 1e-7, 0.0, True, "samples"]


def test_momentum_by_hand() -> None:
    federation = Federation(Mfl(optimiser="sgdm", beta=0.5).build, points(0, 4), make=slope, rate=1.0, steps=2)
    federation.round()
    # m = m/2 + g/2, then y -= m
    # client 0: g  1, m  0.5, y 0.5; g  0.5, m  0.5, y 0
    # client 1: g -3, m -1.5, y 2.5; g -1.5, m -1.5, y 4
    assert {name: federation.state[name].item() for name in ("x", "m")} == {"x": 2, "m": -0.5}
    federation.round()
    # client 0: g  2, m  0.75, y 1.25; g  1.25, m  1, y 0.25
    # client 1: g -2, m -1.25, y 3.25; g -0.75, m -1, y 4.25
    assert {name: federation.state[name].item() for name in ("x", "m")} == {"x": 2.25, "m": 0}


def test_rmsprop_by_hand() -> None:
    build = Mfl(optimiser="rmsprop", beta=0.5, epsilon=1.0, v0=7.0).build
    federation = Federation(build, points(0, -4), make=slope, rate=1.5, steps=1)
    federation.round()
    # v = v/2 + g^2/2, then y -= 1.5*g/(sqrt(v) + 1)
    # client 0: g 1, v  4, y 1 - 1.5/3
    # client 1: g 5, v 16, y 1 - 1.5*5/5
    assert {name: federation.state[name].item() for name in ("x", "v")} == {"x": 0, "v": 10}
    federation.round()
    # client 0: g 0, v 5, y 0; client 1: g 4, v 13, y -6/(sqrt(13) + 1)
    assert federation.weight() == pytest.approx(-3 / (sqrt(13) + 1), abs=1e-15)
    assert federation.state["v"].item() == 9


def test_mfl_adam_by_hand() -> None:
    federation = Federation(Mfl().build, points(0, 4), make=slope, rate=1.001, steps=2)
    assert scalars(federation) == {"x": 1, "m": 0, "v": 1, "t": 0}
    federation.round()
    # m = 0.9m + 0.1g, v = 0.99v + 0.01g^2, then y -= 1.001*m/(sqrt(v) + 0.001)
    # client 0: g 1,    m  0.1, v 1,      y 1 - 1.001*0.1/1.001 = 0.9
    #           g 0.9,  m 0.18, v 0.9981, y 0.9 - 1.001*0.18/(0.999049548... + 0.001) = 0.719828927174116
    # client 1: g -3,   m -0.3, v 1.08,   y 1 + 1.001*0.3/(1.039230484... + 0.001) = 1.288686021475724
    #           g -2.711313978524276, m -0.541131397852428, v 1.142712234901411, y 1.794932821688866
    assert scalars(federation) == pytest.approx(
        {"x": 1.257380874431491, "m": -0.180565698926214, "v": 1.070406117450706, "t": 2}, abs=2e-15
    )
    federation.round()
    # client 0: g  1.257380874431491, m -0.036771041590443, v 1.075512122910060, y 1.292838837653918
    #           g  1.292838837653918, m  0.096189946333993, v 1.081471324282422, y 1.200339453628888
    # client 1: g -2.742619125568509, m -0.436771041590443, v 1.134921652955540, y 1.667393755751441
    #           g -2.332606244248559, m -0.626354561856255, v 1.177982955333059, y 2.244538653513659
    assert scalars(federation) == pytest.approx(
        {"x": 1.722439053571274, "m": -0.265082307761131, "v": 1.129727139807741, "t": 4}, abs=2e-15
    )


def test_fedavg_adam_by_hand() -> None:
    federation = Federation(FedAvgAdam().build, points(0, 4), make=slope, rate=0.1, steps=2)
    assert scalars(federation) == {"x": 1, "m": 0, "v": 0, "t": 0}
    federation.round()
    # y -= 0.1*(m/(1 - 0.9^t))/(sqrt(v/(1 - 0.999^t)) + 1e-7), t = 1, 2
    # client 0: g  1, m  0.1, v 0.001, y 1 - 0.1*1/(1 + 1e-7) = 0.900000009999999
    #           g  0.900000009999999, m  0.180000001000000, v 0.001809000018000, y 0.800412248082150
    # client 1: g -3, m -0.3, v 0.009, y 1 + 0.1*3/(3 + 1e-7) = 1.099999996666667
    #           g -2.900000003333333, m -0.560000000333333, v 0.017401000019333, y 1.199897286205718
    assert scalars(federation) == pytest.approx(
        {"x": 1.000154767143934, "m": -0.189999999666667, "v": 0.009605000018667, "t": 2}, abs=2e-15
    )
    federation.round()
    # t = 3, 4, from the averaged m and v
    # client 0: g  1.000154767143934, m -0.070984522985607, v 0.010595704576889, y 1.014085465153279
    #           g  1.014085465153279, m  0.037522475828282, v 0.011613478202947, y 1.007686903214484
    # client 1: g -2.999845232856066, m -0.470984522985607, v 0.018594466439737, y 1.069928010476112
    #           g -2.930071989523888, m -0.716893269639435, v 0.027161193837090, y 1.149865799285999
    assert scalars(federation) == pytest.approx(
        {"x": 1.078776351250242, "m": -0.339685396905576, "v": 0.019387336020018, "t": 4}, abs=2e-15
    )


def test_fedavg_adam_weights_clients_by_samples(crowd: Callable[..., Handmade]) -> None:
    federation = Federation(FedAvgAdam().build, crowd((0, 1), (4, 3)), make=slope, rate=0.1, steps=2)
    federation.round()
    # weights 1 and 3 for clients 0 and 1, as above
    assert scalars(federation) == pytest.approx(
        {"x": 1.100026026674826, "m": -0.375, "v": 0.013503000019, "t": 2}, abs=2e-15
    )


def test_one_client_equals_torch_adam() -> None:
    """Over three rounds: moments and step count continue."""
    federation = Federation(FedAvgAdam().build, mixed((10,)), make=dense, rate=0.01, steps=4)
    job = federation.clients
    theirs = torch.nn.Parameter(job.network.variables["x"].clone())
    adam = torch.optim.Adam([theirs], lr=0.01, betas=(0.9, 0.999), eps=1e-7)
    samples, no_stats = job.samples(0, round=1), torch.zeros(0, dtype=torch.float64)
    for number in range(1, 4):
        federation.round()
        for (batch,) in job.steps(job.algorithm.works["train"], 0, federation.info._replace(round=number)):
            part = type(samples)(samples.x[batch], samples.y[batch])
            _, theirs.grad, _ = job.network.gradient(theirs.detach(), no_stats, part)
            adam.step()
        torch.testing.assert_close(federation.state["x"], theirs.detach(), rtol=0, atol=1e-12)
        assert federation.state["t"].item() == 4 * number


@pytest.mark.parametrize(("optimiser", "flops"), [("rmsprop", 5), ("sgdm", 8), ("adam", 11)])
def test_flops_of_tracked_statistics(optimiser: str, flops: int) -> None:
    federation = Federation(Mfl(optimiser=optimiser).build, points(0), make=slope, steps=2)
    (reply,) = federation.round().replies
    assert reply.costs.flops.tolist() == [2 * (100 + flops)]  # two steps, one sample, one parameter


def test_the_step_count_stays_an_integer(crowd: Callable[..., Handmade]) -> None:
    clients = crowd((0, 1), (4, 3))
    federation = Federation(FedAvgAdam().build, clients, make=slope, epochs=1, batch_size=1)
    federation.round()
    assert federation.state["t"].item() == 2  # one and three steps: (1*1 + 3*3)/4 = 2.5, ties to even
    uniform = Federation(Mfl().build, clients, make=slope, epochs=1, batch_size=1)
    uniform.round()
    assert uniform.state["t"].item() == 2  # (1 + 3)/2


def test_a_second_moment_is_never_negative() -> None:
    """A lossy codec may decode a negative value."""
    federation = Federation(FedAvgAdam().build, points(0), make=slope)
    rounds = federation.clients.algorithm.round(federation.state, federation.info)
    next(rounds)
    value = {name: torch.tensor([-0.5]) for name in ("y", "m", "v", "t")} | {"stats": torch.zeros(0)}
    nothing = torch.zeros(1).numpy()
    with pytest.raises(StopIteration) as stopped:
        rounds.send(Reply(value, (0,), nothing, (), Costs.free(1), nothing, communicated=True))
    assert stopped.value.value["v"].item() == 0
    assert stopped.value.value["m"].item() == -0.5
