"""A federation of one client with all data is ordinary training, bit for bit."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from federation import Federation, dense, mixed, normed
from fedge.algorithms.fedavg import FedAvg
from fedge.client.network import Network

AMOUNTS = {"steps": {"steps": 5}, "epochs": {"epochs": 2}}


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("make", [dense, normed])
def test_one_client_is_centralised_sgd(make: object, amount: str) -> None:
    # 9 samples in batches of 4: steps straddle permutations, epochs end in a batch of one, dropped with BatchNorm
    federation = Federation(FedAvg().build, mixed((9,)), make=make, rate=0.1, dtype=torch.float32, **AMOUNTS[amount])
    job = federation.clients
    initial = Network(make, 1, task="classes")  # type: ignore[arg-type]
    module = initial.trained(initial.variables).train()
    for parameter in module.parameters():
        parameter.requires_grad_(True)
    sgd = torch.optim.SGD(module.parameters(), lr=0.1)
    samples = mixed((9,)).train(0, 1)
    for number in (1, 2, 3):
        federation.round()
        for (batch,) in job.steps(job.algorithm.works["train"], 0, federation.info._replace(round=number)):
            sgd.zero_grad()
            cross_entropy(module(samples.x[batch]), samples.y[batch]).backward()
            sgd.step()
        assert torch.equal(federation.state["x"], torch.cat([p.detach().reshape(-1) for p in module.parameters()]))
        assert torch.equal(federation.state["stats"], running(module))


def running(module: nn.Module) -> torch.Tensor:
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm1d)]
    return torch.cat([torch.zeros(0), *(side for norm in norms for side in (norm.running_mean, norm.running_var))])
