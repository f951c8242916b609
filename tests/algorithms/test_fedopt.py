"""On `points(0, 4)` two steps at rate 1/2 have the mean change q = x - mean(y) = 3/4 * (x - 2), at first -3/4."""

from collections.abc import Callable
from math import sqrt

import pytest
import torch

from federation import Federation, Handmade, mixed, points, slope
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.fedopt import FedAdam, FedAdamKDecay, FedOpt
from fedge.core.drive import first_exchange

HALF = {"make": slope, "rate": 0.5, "steps": 2}


def scalars(federation: Federation) -> dict[str, float]:
    return {name: value.item() for name, value in federation.state.items() if name != "stats"}


def test_presets() -> None:
    names = ("optimiser", "beta", "beta2", "epsilon", "v0", "bias_correction", "weighting")
    assert [getattr(FedOpt(), name) for name in names] == ["adam", 0.9, 0.99, 1e-3, 1.0, False, "uniform"]
    assert [getattr(FedAdam(), name) for name in names] == ["adam", 0.9, 0.999, 1e-4, 0.0, False, "samples"]
    assert [getattr(FedAdamKDecay(), name) for name in names] == ["adam", 0.9, 0.999, 1e-8, 0.0, True, "uniform"]


def test_momentum_by_hand() -> None:
    federation = Federation(FedOpt(optimiser="sgdm", beta=0.5).build, points(0, 4), server_rate=2.0, **HALF)
    assert scalars(federation) == {"x": 1, "m": 0, "t": 0}
    federation.round()
    assert scalars(federation) == {"x": 1.75, "m": -0.375, "t": 1}  # m = q/2, x = 1 + 2*0.375
    federation.round()
    # q = 3/4*(-1/4) = -0.1875, m = -0.1875 - 0.09375, x = 1.75 + 2*0.28125
    assert scalars(federation) == {"x": 2.3125, "m": -0.28125, "t": 2}


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        (  # v = (v0 + q^2)/2 = 1, x = 1 + 0.75/(1 + 0.5); then q = -0.375, v = 0.5 + 0.140625/2
            {"optimiser": "rmsprop", "v0": 1.4375},
            {"x": 1.5, "v": 1},
            {"x": 1.5 + 0.375 / (sqrt(0.5703125) + 0.5), "v": 0.5703125},
        ),
        (  # m = q/2, v as before, x = 1 + 0.375/1.5; then q = -0.5625, m = -0.1875 - 0.28125, v = 0.5 + 0.31640625/2
            {"optimiser": "adam", "v0": 1.4375},
            {"x": 1.25, "m": -0.375, "v": 1},
            {"x": 1.25 + 0.46875 / (sqrt(0.658203125) + 0.5), "m": -0.46875, "v": 0.658203125},
        ),
        (  # v = v0 + q^2 = 1; then q = -0.375, v = 1 + 0.140625
            {"optimiser": "adagrad", "v0": 0.4375},
            {"x": 1.5, "v": 1},
            {"x": 1.5 + 0.375 / (sqrt(1.140625) + 0.5), "v": 1.140625},
        ),
        (  # v = v0 - q^2/2 = 1; then q = -0.5625, m = -0.46875, v = 1 - 0.31640625/2
            {"optimiser": "yogi", "v0": 1.28125},
            {"x": 1.25, "m": -0.375, "v": 1},
            {"x": 1.25 + 0.46875 / (sqrt(0.841796875) + 0.5), "m": -0.46875, "v": 0.841796875},
        ),
    ],
    ids=lambda value: value.get("optimiser"),
)
def test_the_step_uses_the_new_statistics(
    options: dict[str, object], first: dict[str, float], second: dict[str, float]
) -> None:
    federation = Federation(FedOpt(beta=0.5, beta2=0.5, epsilon=0.5, **options).build, points(0, 4), **HALF)
    federation.round()
    assert scalars(federation) == first | {"t": 1}
    federation.round()
    assert scalars(federation) == pytest.approx(second | {"t": 2}, abs=1e-15)


def test_fedadam_by_hand() -> None:
    federation = Federation(FedAdam().build, points(0, 4), server_rate=0.01, **HALF)
    federation.round()
    # m = 0.1*q, v = 0.001*q^2, no correction: the first step is 0.1/sqrt(0.001) = 3.16 times the rate
    expected = {"x": 1 + 0.01 * 0.075 / (sqrt(0.0005625) + 1e-4), "m": -0.075, "v": 0.0005625, "t": 1}
    assert scalars(federation) == pytest.approx(expected, abs=1e-15)


def test_fedadam_kdecay_by_hand() -> None:
    federation = Federation(FedAdamKDecay().build, points(0, 4), server_rate=0.25, **HALF)
    federation.round()
    x = 1 + 0.25 * 0.75 / (0.75 + 1e-8)  # corrected m is q, corrected v is q^2
    assert federation.weight() == pytest.approx(x, abs=1e-15)
    federation.round()
    q = 0.75 * (x - 2)
    m, v = 0.9 * -0.075 + 0.1 * q, 0.999 * 0.0005625 + 0.001 * q * q
    step = m / (1 - 0.9**2) / (sqrt(v / (1 - 0.999**2)) + 1e-8)
    assert scalars(federation) == pytest.approx({"x": x - 0.25 * step, "m": m, "v": v, "t": 2}, abs=1e-13)


@pytest.mark.parametrize(("kind", "q"), [(FedAdam, -1.5), (FedAdamKDecay, -0.75), (FedOpt, -0.75)])
def test_weighting_of_the_mean_change(kind: type[FedOpt], q: float, crowd: Callable[..., Handmade]) -> None:
    federation = Federation(kind().build, crowd((0, 1), (4, 3)), **HALF)
    federation.round()
    # by samples (1*0.75 - 3*2.25)/4, uniform (0.75 - 2.25)/2
    assert federation.state["m"].item() == pytest.approx(0.1 * q, abs=1e-15)


def test_statistics_stay_on_the_server() -> None:
    federation = Federation(FedOpt().build, points(0), make=slope)
    exchange = first_exchange(federation.clients.algorithm, federation.state, federation.info)
    assert exchange.down.keys() == {"x", "stats"}


def test_batchnorm_statistics_are_plain_means() -> None:
    """The server's optimiser does not affect them."""
    adaptive = Federation(FedOpt(optimiser="yogi").build, mixed(), server_rate=0.5).rounds(1)
    plain = Federation(FedAvg(weighting="uniform").build, mixed()).rounds(1)
    assert torch.equal(adaptive.state["stats"], plain.state["stats"])
    assert not torch.equal(adaptive.state["x"], plain.state["x"])
