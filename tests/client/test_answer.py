"""A client's complete part in an exchange, before encoding."""

import torch

from federation import BUILDS, CODINGS, Federation, mixed, points, slope
from fedge.algorithms.compressed import compressed
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.scaffold import Scaffold
from fedge.client.answer import answer
from fedge.core.answer import Answer
from fedge.core.codecs.chain import CodecOptions
from fedge.core.layout import Tree


def ask(made: Federation, client: int) -> tuple[Answer, Tree | None]:
    return answer(made.clients, client, "train", made.state, made.info._replace(round=1))


def test_one_step_by_hand() -> None:
    """The gradient at 1 is 1 - 4 = -3, with the loss 9/2; the rate is 0.1."""
    given, kept = ask(Federation(FedAvg().build, points(0, 4), make=slope, steps=1), 1)
    assert given.upload["y"].tolist() == [1.3]
    assert given[:3] == (1, 1, (1, 1, 1, 4.5))
    assert given.problem == ""
    assert kept is None  # FedAvg has no private state


def test_private_state_is_returned_and_not_written() -> None:
    """SCAFFOLD's option II: c_i = (x - y)/(K*rate) is the gradient, -3."""
    made = Federation(Scaffold().build, points(0, 4), make=slope, steps=1)
    _, kept = ask(made, 1)
    assert kept is not None
    torch.testing.assert_close(kept["c_i"], torch.tensor([-3.0], dtype=torch.float64))
    assert made.clients.kept.read(1)["c_i"].tolist() == [0]


def test_an_upload_is_encoded() -> None:
    made = Federation(compressed(FedAvg().build, *CodecOptions(**CODINGS["full"]).chains), mixed())
    given, _ = ask(made, 1)
    assert given.upload.keys() == {"stream:float64:y", "stats"}


def test_a_diverged_client_reports_that_it_cannot_encode() -> None:
    made = Federation(BUILDS["codec(fedavg, full)"], mixed(), rate=1e200, steps=5)
    given, _ = ask(made, 1)
    assert given.problem == "the upload 'y' is not finite"
    assert given.upload == {}
    assert given.samples == 9
