"""Clients that differ in minimiser and curvature: with many local steps, FedAvg and SCAFFOLD end at different points.

The loss of client i is a_i*(w - b_i)^2/2 and the global loss is the mean, so the true minimiser is
sum(a_i*b_i)/sum(a_i). K steps at rate eta leave the share r_i = (1 - eta*a_i)^K of a client's distance to b_i.
"""

from math import sqrt

import pytest
import torch

from federation import Federation, Handmade, slope
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.scaffold import Scaffold
from fedge.core.algorithm import Build
from fedge.data.clients import Samples

CURVES = {0.0: 1.0, 3.0: 0.25, -1.0: 0.5}  # b: a
TRUE = (1.0 * 0 + 0.25 * 3 + 0.5 * -1) / 1.75  # 1/7
TEN = {"make": slope, "rate": 0.2, "steps": 10}


def curved() -> Handmade:
    """Return clients with input sqrt(a) and target sqrt(a)*b, so that the loss is a*(w - b)^2/2."""
    samples = [Samples(torch.tensor([[sqrt(a)]]), torch.tensor([[sqrt(a) * b]])) for b, a in CURVES.items()]
    return Handmade(samples, 1, task="values")


def test_fedavg_converges_to_another_point() -> None:
    federation = Federation(FedAvg().build, curved(), **TEN).rounds(30)
    # x = mean(b + r*(x - b)), so x = sum((1 - r)*b)/sum(1 - r): a client is weighted by its progress
    counts = {b: 1 - (1 - 0.2 * a) ** 10 for b, a in CURVES.items()}
    expected = sum(b * count for b, count in counts.items()) / sum(counts.values())
    assert federation.weight() == pytest.approx(expected, abs=1e-6)
    assert abs(expected - TRUE) > 0.1


@pytest.mark.parametrize("option", ["I", "II"])
def test_scaffold_reaches_the_true_minimiser(option: str) -> None:
    federation = Federation(Scaffold(option=option).build, curved(), **TEN).rounds(30)
    assert federation.weight() == pytest.approx(TRUE, abs=1e-6)


@pytest.mark.parametrize("build", [FedAvg(weighting="uniform").build, Scaffold().build], ids=["fedavg", "scaffold"])
def test_with_one_step_there_is_no_drift(build: Build) -> None:
    federation = Federation(build, curved(), make=slope, rate=1.0, steps=1).rounds(30)
    assert federation.weight() == pytest.approx(TRUE, abs=1e-6)
