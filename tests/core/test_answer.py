"""Requests and answers of an exchange."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
import torch
from torch import nn

from federation import Federation, points, slope
from fedge.algorithms.compressed import compressed
from fedge.algorithms.fedavg import FedAvg
from fedge.core import message
from fedge.core.algorithm import Info
from fedge.core.answer import Answer, Request, find_infinite, seal, send
from fedge.core.codecs.chain import CodecOptions, parse_chain
from fedge.core.drive import first_exchange
from fedge.core.effort import Effort
from fedge.core.errors import TrainingError
from fedge.core.layout import Layout, Tree
from fedge.core.message import WorkAnswer, WorkRequest

EFFORT = Effort(3, 4, 5, 0.5)


def coded(**stages: list[str]) -> Federation:
    return Federation(compressed(FedAvg().build, *CodecOptions(**stages).chains), points(0, 4), make=slope)


def request_of(made: Federation, x: float = 1.0) -> Request:
    info = made.info._replace(round=3)
    state = {**made.state, "x": torch.tensor([x], dtype=torch.float64)}
    return send(first_exchange(made.clients.algorithm, state, info), info, made.clients.algorithm.works["train"])


def answer(y: float) -> Answer:
    return Answer(1, 7, EFFORT, {"y": torch.tensor([y], dtype=torch.float64), "stats": torch.zeros(0)})


def test_a_request_contains_all_settings_except_the_cohort() -> None:
    found = request_of(Federation(FedAvg().build, points(0, 4), make=slope))
    assert found.coded is found.exchange.down
    assert found.meta() == WorkRequest("train", 3, 0.1, 3, None, 2, 7, 1.0)


def test_clients_see_the_decoded_download() -> None:
    found = request_of(coded(down=["fp16"]), x=0.1)
    assert found.coded.keys() == {"stream:float64:x", "stats"}
    assert found.exchange.down["x"].tolist() == [float(np.float16(0.1))]  # rounded


def test_a_server_that_diverged_cannot_encode() -> None:
    with pytest.raises(TrainingError, match=r"^round 3: 'x' of the server is not finite.*algorithm\.learning_rate"):
        request_of(coded(down=["fp16"]), x=inf)


def test_an_answer_round_trips() -> None:
    given = answer(2.0)._replace(problem="no memory")
    data = message.pack(given.meta(), given.upload)
    meta, tree = message.unpack(data, WorkAnswer)
    assert meta == WorkAnswer(1, 7, 3, 4, 5, 0.5, "no memory")
    found = Answer.read(meta, tree)
    assert found[:3] == given[:3]
    assert (found.upload["y"].tolist(), found.problem) == ([2.0], "no memory")


def test_seal_encodes_an_answer_by_its_codec() -> None:
    plain, packed = Federation(FedAvg().build, points(0, 4), make=slope), coded(up=["uniq"])
    request = request_of(packed)
    given = answer(2.0)
    assert seal(plain.clients.algorithm.works["train"], "train", given, request.exchange.down, request.info) is given
    found = seal(packed.clients.algorithm.works["train"], "train", given, request.exchange.down, request.info)
    assert found.upload.keys() == {"stream:float64:y", "stats"}
    assert not found.problem


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (answer(nan), "the upload 'y' is not finite"),
        (answer(2.0)._replace(effort=EFFORT._replace(loss=inf)), "the loss is not finite"),
        (answer(1e300), "the change of 'y' is not finite in float32; lower the learning rate or clip gradients"),
    ],
)
def test_an_upload_that_cannot_be_encoded_is_reported(given: Answer, problem: str) -> None:
    made = coded(up=["uniq"])
    request = request_of(made)
    found = seal(made.clients.algorithm.works["train"], "train", given, request.exchange.down, request.info)
    assert (found.problem, found.upload) == (problem, {})
    assert found[:3] == given[:3]


def test_find_infinite_names_the_first_value_that_is_not_finite() -> None:
    tree = {"a": torch.ones(2), "b": torch.tensor([1.0, -inf]), "c": torch.tensor([nan]), "n": torch.tensor([7])}
    assert find_infinite(EFFORT, {"a": tree["a"], "n": tree["n"]}) is None
    assert find_infinite(EFFORT, tree) == "the upload 'b'"
    assert find_infinite(EFFORT._replace(loss=nan), tree) == "the loss"
    assert find_infinite(Effort(), {}) is None  # no gradient, no loss


def test_different_works_of_a_round_draw_different_numbers() -> None:
    """Values between two levels are rounded at random: two draws of 200 of them practically never agree."""
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
