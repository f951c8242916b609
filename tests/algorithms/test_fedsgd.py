"""On `points(0, 4)` two steps at rate 1/2 have the mean change q = x - mean(y) = 3/4 * (x - 2)."""

from collections.abc import Callable

import pytest

from federation import Federation, Handmade, points, slope
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.fedsgd import FedSgd

HALF = {"make": slope, "rate": 0.5, "steps": 2}


def test_the_mean_change_is_a_pseudo_gradient() -> None:
    federation = Federation(FedSgd().build, points(0, 4), server_rate=0.5, **HALF)
    federation.round()
    assert federation.weight() == 1.375  # 1 - 0.5*(-0.75)
    federation.round()
    assert federation.weight() == 1.609375  # 1.375 - 0.5*0.75*(-0.625)


def test_the_sum_of_gradients_is_the_change_over_the_rate() -> None:
    federation = Federation(FedSgd(pseudo="gradient_sum").build, points(0, 4), server_rate=0.2, **HALF)
    federation.round()
    # client 0: 1 + 0.5, client 1: -3 - 1.5, mean -1.5
    assert federation.weight() == pytest.approx(1.3, abs=1e-15)
    federation.round()
    # 0.75*(1.3 - 2)/0.5 = -1.05, and 1.3 + 0.2*1.05
    assert federation.weight() == pytest.approx(1.51, abs=1e-15)


@pytest.mark.parametrize(
    ("weighting", "first", "second"),
    # samples: q = 0.25*0.75 + 0.75*(-2.25) = -1.5; then 0.25*0.75*2.5 - 0.75*0.75*1.5 = -0.375
    [("samples", 2.5, 2.875), ("uniform", 1.75, 1.9375)],
)
def test_weighting(crowd: Callable[..., Handmade], weighting: str, first: float, second: float) -> None:
    federation = Federation(FedSgd(weighting=weighting).build, crowd((0, 1), (4, 3)), **HALF)
    federation.round()
    assert federation.weight() == first
    federation.round()
    assert federation.weight() == second


def test_a_server_rate_of_one_equals_fedavg() -> None:
    clients = points(0.3, -1.7, 2.9)
    found = [Federation(build, clients, make=slope).rounds(3).weight() for build in (FedSgd().build, FedAvg().build)]
    assert found[0] == pytest.approx(found[1], abs=1e-14)
