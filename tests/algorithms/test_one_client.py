import pytest
import torch

from federation import Federation, points, slope
from fedge.algorithms.dynavg import DynAvg
from fedge.algorithms.fedopt import FedOpt
from fedge.algorithms.one_client import reply_of_one, tell
from fedge.core.errors import ConfigError


def test_the_state_after_a_reply() -> None:
    federation = Federation(FedOpt(optimiser="sgdm", beta=0.5).build, points(3), make=slope)
    before = federation.state
    reply = reply_of_one({"q": torch.tensor([0.5], dtype=torch.float64), "stats": torch.zeros(0)})
    after = tell(federation.clients.algorithm, before, federation.info, reply)
    assert after["m"].item() == 0.25  # (1 - 0.5)*0.5
    assert after["x"].item() == 0.75  # 1 - m
    assert before["x"].item() == 1


def test_a_round_with_another_exchange_is_rejected() -> None:
    federation = Federation(DynAvg(delta=0).build, points(3), make=slope)
    reply = reply_of_one({"flag": torch.ones(1, 1)})  # a client that has moved is asked for its model
    with pytest.raises(ConfigError, match="personal, cluster: need an algorithm with one exchange per round"):
        tell(federation.clients.algorithm, federation.state, federation.info, reply)
