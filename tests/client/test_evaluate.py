"""Sums over the samples of one client; the model predicts class 0 for inputs with the sign of its weight w = 1."""

from math import exp, log

import pytest
import torch

from federation import Federation, Handmade, Sign, points, slope
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.mtfl import mtfl
from fedge.client import evaluate
from fedge.client.evaluate import measure, score
from fedge.core.algorithm import Build
from fedge.core.question import Measure, Question, Sums
from fedge.data.clients import Samples

TRAIN = Samples(torch.tensor([[1.0], [1.0], [-2.0]]), torch.tensor([0, 1, 1]))  # margins 1, -1, 2
TEST = Samples(torch.tensor([[3.0]]), torch.tensor([1]))  # margin -3


class Apart(Handmade):
    """Clients whose test sets differ from their training sets."""

    def test(self, client: int, round: int) -> Samples:  # type: ignore[override]
        return TEST if client == 0 else Samples(*(side[:0] for side in TEST))


def ask(which: Measure, client: int = 0, build: Build | None = None, **options: object) -> Sums | None:
    made = Federation(build or FedAvg().build, Apart([TRAIN, TRAIN], 2), make=Sign, **options)  # type: ignore[arg-type]
    work = "train" if which == "trained" else None
    return measure(made.clients, client, Question(which, made.state, (client,), work), made.info._replace(round=1))


def loss(*margins: float) -> float:
    return sum(log(1 + exp(-2 * m)) for m in margins)


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ("train", {"count": 3, "correct": 2, "loss": pytest.approx(loss(1, -1, 2), abs=1e-12)}),
        ("test", {"count": 1, "correct": 0, "loss": pytest.approx(loss(-3), abs=1e-12)}),
        ("user", {"count": 1, "correct": 0, "loss": pytest.approx(loss(-3), abs=1e-12)}),
    ],
)
def test_sums_by_hand(which: Measure, expected: Sums) -> None:
    assert ask(which) == expected


def test_the_trained_model_is_the_result_of_local_steps() -> None:
    """One step over all three samples: the gradient of log(1 + exp(-2ws)) is -2s/(1 + exp(2ws)), s = x or -x."""
    gradient = sum(-2 * s / (1 + exp(2 * s)) for s in (1, -1, 2)) / 3
    found = ask("trained", rate=0.5, steps=1, batch_size=3)
    assert found == {"count": 1, "correct": 0, "loss": pytest.approx(loss(-3 * (1 - 0.5 * gradient)), abs=1e-12)}


def test_a_client_without_test_samples_answers_about_its_training_data_only() -> None:
    assert ask("test", client=1) is None
    assert ask("user", client=1) is None
    assert ask("trained", client=1) is None
    assert ask("train", client=1) is not None


def test_user_accuracy_uses_private_weights() -> None:
    made = Federation(mtfl(FedAvg().build, ["w"]), Apart([TRAIN, TRAIN], 2), make=Sign, rate=0.0)
    kept = made.clients.kept.read(0)
    flipped = {name: -value if name.endswith(".x") else value for name, value in kept.items()}
    assert any(not torch.equal(flipped[name], value) for name, value in kept.items())
    made.clients.kept.write(0, flipped)
    variables = made.clients.network.variables
    found = {
        which: measure(made.clients, 0, Question(which, variables, (0,)), made.info._replace(round=1))  # type: ignore[arg-type]
        for which in ("test", "user")
    }
    assert found["test"] == {"count": 1, "correct": 0, "loss": pytest.approx(loss(-3), abs=1e-12)}
    assert found["user"] == {"count": 1, "correct": 1, "loss": pytest.approx(loss(3), abs=1e-12)}


def test_pieces_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the targets 0, 1, 2 and the output 1 for all, the losses are 1/2, 0 and 1/2."""
    monkeypatch.setattr(evaluate, "PIECE", 2)
    made = Federation(FedAvg().build, points(0), make=slope)
    samples = Samples(torch.ones(3, 1), torch.tensor([[0.0], [1.0], [2.0]]))
    assert score(made.clients.network, made.clients.network.variables, samples) == {"count": 3, "loss": 1}
