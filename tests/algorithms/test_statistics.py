"""Shared BatchNorm statistics are averaged, regardless of the server's update of the weights."""

import pytest
import torch
from torch import nn

from federation import Federation, Handmade
from fedge.algorithms.ce_fedavg import CeFedAvg
from fedge.algorithms.dynavg import DynAvg
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.fedsgd import FedSgd
from fedge.algorithms.mfl import FedAvgAdam
from fedge.algorithms.scaffold import Scaffold
from fedge.core.algorithm import Build
from fedge.data.clients import Samples


def normed() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1))


def clients(*inputs: list[float]) -> Handmade:
    columns = [torch.tensor(values, dtype=torch.float32).unsqueeze(1) for values in inputs]
    return Handmade([Samples(x, torch.zeros_like(x)) for x in columns], 1, task="values")


@pytest.mark.parametrize(
    "build",
    [
        FedAvg().build,
        FedSgd().build,
        Scaffold().build,
        FedAvgAdam().build,
        CeFedAvg().build,
        DynAvg(delta=0).build,
    ],
    ids=["fedavg", "fedsgd", "scaffold", "fedavg_adam", "ce_fedavg", "dynavg"],
)
def test_statistics_are_averaged(build: Build) -> None:
    federation = Federation(build, clients([1, 3], [2, 6]), make=normed, steps=1, server_rate=0.5)
    federation.round()
    # momentum 0.1; batch means 2 and 4; unbiased variances 2 and 8
    # running means 0.2 and 0.4; running variances 0.9 + 0.2 and 0.9 + 0.8
    assert federation.state["stats"].tolist() == pytest.approx([0.3, 1.4], abs=1e-12)


def test_statistics_have_the_weights_of_models() -> None:
    federation = Federation(FedAvg().build, clients([1, 3], [2, 6, 2, 6, 2, 6]), make=normed, steps=1, batch_size=6)
    federation.round()
    # the second client's variance is now 6*4/5 = 4.8; weights 2 and 6
    expected = [(0.2 + 3 * 0.4) / 4, ((0.9 + 0.2) + 3 * (0.9 + 0.48)) / 4]
    assert federation.state["stats"].tolist() == pytest.approx(expected, abs=1e-12)
