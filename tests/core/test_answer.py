"""How answers are encoded."""

import torch
from torch import nn

from fedge.algorithms.compressed import compressed
from fedge.algorithms.fedavg import FedAvg
from fedge.core.algorithm import Info
from fedge.core.answer import Answer, seal
from fedge.core.codecs.chain import parse_chain
from fedge.core.effort import Effort
from fedge.core.layout import Layout, Tree


def test_the_works_of_a_round_do_not_share_their_draws() -> None:
    """Values between two levels are rounded at random: 200 of them hardly ever agree in two draws."""
    layout = Layout.of(nn.Linear(201, 1, bias=False))
    work = compressed(FedAvg().build, parse_chain(["qsgd(2)"]), None, None)(layout).works["train"]
    down = {"x": torch.zeros(201), "stats": torch.zeros(0)}
    upload = {"y": torch.tensor([1.0] + [0.5] * 200), "stats": torch.zeros(0)}
    info = Info(round=1, rate=0.1, num_steps=1, num_epochs=None, num_clients=1, seed=0)

    def sealed(name: str) -> Tree:
        return seal(work, name, Answer(0, 1, Effort(loss=1.0), upload), down, info).upload

    def decoded(name: str) -> torch.Tensor:
        assert work.codec is not None
        return work.codec.decode(sealed(name), down)["y"]

    assert torch.equal(decoded("train"), decoded("train"))
    assert not torch.equal(decoded("train"), decoded("pull"))
