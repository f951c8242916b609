"""Evaluation of a model of one weight w with logits w*x for class 0 and -w*x for class 1.

For w > 0 it predicts by the sign of x.
"""

from collections.abc import Iterator
from math import exp, log

import numpy as np
import pytest
import torch
from torch import nn

from federation import Federation, Handmade, Sign, batched_of, points, slope
from fedge.algorithms.clustered import clustered
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.independent import Independent
from fedge.algorithms.mtfl import mtfl
from fedge.algorithms.per_fedavg import PerFedAvg
from fedge.client.evaluate import score
from fedge.client.perform import perform
from fedge.config import EvaluateOptions
from fedge.core.algorithm import Build
from fedge.core.drive import Engine
from fedge.core.question import Question, add_up, means
from fedge.data.clients import Samples
from fedge.engines.block import Block
from fedge.engines.loop import Loop
from fedge.engines.wire import Wire
from fedge.experiment.evaluation import Evaluation


def samples(*pairs: tuple[float, int]) -> Samples:
    return Samples(torch.tensor([[x] for x, _ in pairs]).reshape(-1, 1), torch.tensor([y for _, y in pairs]).long())


RIGHT = samples((1.0, 0), (-1.0, 1), (2.0, 0))
HALF = samples((1.0, 0), (1.0, 1))
WRONG = samples((1.0, 1), (2.0, 1), (-1.0, 0))


def federation_of(build: Build, *clients: Samples, **options: object) -> Federation:
    return Federation(build, Handmade(clients, 2), make=Sign, **options)


@pytest.fixture(params=["one at a time", "blocks"], autouse=True)
def _blocks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run every test with both engines."""
    global by_blocks
    by_blocks = request.param == "blocks"
    yield
    by_blocks = False


by_blocks = False


def engine_of(federation: Federation) -> Engine:
    sides = federation.sides
    return Block(sides, batched_of(sides), num_rows=2) if by_blocks else Loop(sides)


def evaluation(federation: Federation, **options: bool) -> Evaluation:
    chosen = EvaluateOptions(user_accuracy=True, **options)
    return Evaluation(chosen, federation.sides.server, engine_of(federation), has_test=True)


def users(federation: Federation, clients: range | None = None) -> dict[int, float]:
    measured, info = evaluation(federation), federation.info
    if clients is not None:
        measured = Evaluation(
            EvaluateOptions(user_accuracy=True, users="selected"),
            federation.sides.server,
            engine_of(federation),
            has_test=True,
        )
        info = info._replace(cohort=tuple(clients))
    measured.measure(federation.state, info)
    return measured.user_accuracies


def trained_users(federation: Federation) -> dict[int, float]:
    measured = evaluation(federation)
    found = measured._ask_trained(federation.state, range(federation.info.num_clients), federation.info)
    return {client: sums["correct"] / sums["count"] for client, sums in found.items()}


def central(federation: Federation) -> dict[str, float]:
    return means(engine_of(federation).test(federation.clients.network.variables))


def training(federation: Federation) -> dict[str, float]:
    question = Question("train", federation.clients.network.variables, range(federation.info.num_clients))
    return means(add_up(engine_of(federation).evaluate(question, federation.info._replace(round=1)).values()))


# ---------------------------------------------------------------- CA


def test_central_accuracy_and_loss_by_hand() -> None:
    federation = federation_of(FedAvg().build, RIGHT, HALF, WRONG)
    metrics = central(federation)
    # 3 of 3, 1 of 2, 0 of 3; the loss is log(1 + exp(-2m)), m = x for class 0 and -x for class 1
    margins = [1, 1, 2, 1, -1, -1, -2, -1]
    assert metrics["accuracy"] == 0.5
    assert metrics["loss"] == pytest.approx(sum(log(1 + exp(-2 * m)) for m in margins) / 8, abs=1e-12)


def test_a_regression_has_a_loss_only() -> None:
    federation = Federation(FedAvg().build, points(0, 4), make=slope)
    metrics = central(federation)
    assert metrics == {"loss": 2.5}  # (1 + 9)/2/2


def identity(size: int) -> nn.Module:
    module = nn.Linear(size, size, bias=False)
    nn.init.eye_(module.weight)
    return module


def labelled(scores: list[list[float]], labels: list[list[int]]) -> tuple[Federation, Samples]:
    """Return a model whose outputs are its inputs, and samples with several labels or none."""
    size = len(scores[0])
    tests = Samples(torch.tensor(scores), torch.tensor([[float(i in own) for i in range(size)] for own in labels]))
    return Federation(FedAvg().build, Handmade([tests], size, "labels"), make=lambda: identity(size)), tests


def test_multi_label_accuracy_is_recall_at_five() -> None:
    scores = [[7.0, 6, 5, 4, 3, 2, 1], [1.0, 2, 3, 4, 5, 6, 7], [1.0, 2, 3, 4, 5, 6, 7]]
    federation, tests = labelled(scores, [[0, 5, 6], [2, 6], []])
    metrics = means(score(federation.clients.network, federation.clients.network.variables, tests))
    # the five most likely are 0..4, then 2..6: 1 of 3, 2 of 2, and no labels count as 0
    assert metrics["accuracy"] == pytest.approx((1 / 3 + 1 + 0) / 3, abs=1e-15)
    # the sum over labels of log(1 + e^s) - s*label
    expected = sum(sum(log(1 + exp(s)) for s in row) for row in scores) - (7 + 2 + 1) - (3 + 7)
    assert metrics["loss"] == pytest.approx(expected / 3, abs=1e-12)
    assert users(federation) == {0: metrics["accuracy"]}


def test_with_fewer_than_five_outputs_all_labels_are_found() -> None:
    federation, tests = labelled([[1.0, 2, 3], [3.0, 2, 1]], [[0], [0, 2]])
    assert means(score(federation.clients.network, federation.clients.network.variables, tests))["accuracy"] == 1


# ---------------------------------------------------------------- training data


class Apart(Handmade):
    """Clients whose test sets differ from their training sets."""

    def test(self, client: int, round: int) -> Samples:  # type: ignore[override]
        return RIGHT


def test_on_the_training_data_by_hand() -> None:
    federation = Federation(FedAvg().build, Apart([RIGHT, HALF, samples(), WRONG], 2), make=Sign)
    found = training(federation)
    margins = [1, 1, 2, 1, -1, -1, -2, -1]
    assert found["accuracy"] == pytest.approx(4 / 8, abs=1e-15)  # by samples, not by clients
    assert found["loss"] == pytest.approx(sum(log(1 + exp(-2 * m)) for m in margins) / 8, abs=1e-12)


def test_a_regression_has_only_a_loss_on_training_data() -> None:
    federation = Federation(FedAvg().build, points(0, 4), make=slope)
    assert training(federation) == {"loss": 2.5}


# ---------------------------------------------------------------- validation split


class Split(Handmade):
    """Clients with separate validation samples; client 1 has none."""

    def validation(self, client: int, round: int) -> Samples:
        return (HALF, samples(), WRONG)[client]


def test_on_the_validation_split_by_hand() -> None:
    federation = Federation(FedAvg().build, Split([RIGHT, RIGHT, RIGHT], 2), make=Sign)
    options = EvaluateOptions()
    measured = Evaluation(options, federation.sides.server, engine_of(federation), has_test=True, has_validation=True)
    found = measured.measure(federation.state, federation.info)
    # 1 of 2 and 0 of 3; all predictions on the test set are correct
    assert found["validation_accuracy"] == pytest.approx(1 / 5, abs=1e-15)
    margins = [1, -1, -1, -2, -1]
    assert found["validation_loss"] == pytest.approx(sum(log(1 + exp(-2 * m)) for m in margins) / 5, abs=1e-12)
    assert found["accuracy"] == 1
    plain = Evaluation(options, federation.sides.server, engine_of(federation), has_test=True)
    assert not [name for name in plain.measure(federation.state, federation.info) if name.startswith("validation")]


def test_the_question_crosses_a_wire() -> None:
    federation = Federation(FedAvg().build, Split([RIGHT, RIGHT, RIGHT], 2), make=Sign)
    question = Question("validation", federation.clients.network.variables, range(3))
    answers = [engine(federation.sides).evaluate(question, federation.info) for engine in (Loop, Wire)]
    assert answers[0] == answers[1]
    assert {client: sums["count"] for client, sums in answers[1].items()} == {0: 2, 2: 3}  # client 1 has none


# ---------------------------------------------------------------- UA


def test_user_accuracy_is_each_clients_own() -> None:
    assert users(federation_of(FedAvg().build, RIGHT, HALF, WRONG)) == {0: 1, 1: 0.5, 2: 0}


def test_only_selected_users_are_measured() -> None:
    assert users(federation_of(FedAvg().build, RIGHT, HALF, WRONG), range(1, 3)) == {1: 0.5, 2: 0}


def test_clients_without_test_samples_are_omitted() -> None:
    assert users(federation_of(FedAvg().build, WRONG, samples(), RIGHT)) == {0: 0, 2: 1}


@pytest.mark.parametrize("build", [Independent().build, mtfl(FedAvg().build, ["w"])], ids=["independent", "mtfl"])
def test_users_are_evaluated_with_their_private_state(build: Build) -> None:
    federation = federation_of(build, RIGHT, WRONG, rate=10.0, steps=1)
    assert users(federation) == {0: 1, 1: 0}
    federation.round(cohort=(1,))
    # a large step on misclassified samples makes client 1's own weight negative, which classifies all correctly
    assert users(federation) == {0: 1, 1: 1}
    model = federation.clients.algorithm.model(federation.state, federation.clients.network.variables)
    assert model["x"].item() == 1  # the global model still has the initial one


def test_evaluation_changes_no_private_state() -> None:
    federation = federation_of(PerFedAvg(alpha=10.0).build, RIGHT, WRONG)
    before = federation.everything()
    users(federation)
    after = federation.everything()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_per_fedavg_adapts_before_it_is_tested() -> None:
    # gradient of client 1 at w = 1: mean of 2|x|*sigmoid(2|x|) > 1; one step of size alpha flips the sign
    assert users(federation_of(PerFedAvg(alpha=1e-6).build, RIGHT, WRONG)) == {0: 1, 1: 0}
    assert users(federation_of(PerFedAvg(alpha=10.0).build, RIGHT, WRONG)) == {0: 1, 1: 1}


def test_the_step_is_alpha_times_the_gradient_of_one_batch() -> None:
    job = federation_of(PerFedAvg(alpha=0.5).build, samples((1.0, 1))).clients
    adapt, info = job.algorithm.adapt, Federation(FedAvg().build, points(0), make=slope).info
    assert adapt is not None
    own, _, effort = perform(job, adapt, 0, job.network.variables, {}, info, purpose="adapt")
    # the gradient of log(1 + exp(2w)) at w = 1 is 2/(1 + exp(-2))
    assert own["x"].item() == pytest.approx(1 - 0.5 * 2 / (1 + exp(-2)), abs=1e-12)
    assert effort.steps == 1


class Untrained(Handmade):
    """A client with test samples only."""

    def __init__(self) -> None:
        super().__init__([samples((1.0, 0), (2.0, 0), (-1.0, 0))], 2)
        self.sizes = np.array([0])

    def num_samples(self, client: int, round: int) -> int:
        return 0

    def train(self, client: int, round: int) -> Samples:
        return samples()


def test_a_client_that_cannot_adapt_is_tested_with_the_global_model() -> None:
    assert users(Federation(PerFedAvg().build, Untrained(), make=Sign)) == {0: pytest.approx(2 / 3)}


# ---------------------------------------------------------------- UA after training


@pytest.mark.parametrize("build", [FedAvg().build, Independent().build, mtfl(FedAvg().build, ["w"])])
def test_users_after_a_round_of_training(build: Build) -> None:
    federation = federation_of(build, RIGHT, WRONG, rate=10.0, steps=1)
    before = federation.everything()
    # one large step on client 1's samples, all misclassified, makes all predictions correct
    assert trained_users(federation) == {0: 1, 1: 1}
    assert users(federation) == {0: 1, 1: 0}
    after = federation.everything()
    assert all(torch.equal(before[key], after[key]) for key in before)  # nothing is stored


def test_the_trained_model_is_the_result_of_local_steps() -> None:
    # client 0 alone: the gradient at w is mean of -2*sigmoid(-2w) and 2*sigmoid(2w), at w = 1 tanh(1) = 0.76;
    # at rate 1 the weight stays positive, at rate 2 it becomes negative, and x > 0 is then class 1
    clients = Apart([HALF], 2)
    kept, turned = (Federation(FedAvg().build, clients, make=Sign, rate=rate, steps=1) for rate in (1.0, 2.0))
    assert trained_users(kept) == {0: 1}
    assert trained_users(turned) == {0: 0}


def test_clients_that_cannot_train_are_omitted() -> None:
    assert trained_users(Federation(FedAvg().build, Untrained(), make=Sign)) == {}
    assert trained_users(federation_of(FedAvg().build, RIGHT, samples())) == {0: 1}


def test_users_train_the_model_of_their_cluster() -> None:
    build = clustered(FedAvg().build, 2, when=1)
    federation = federation_of(build, RIGHT, WRONG, rate=10.0, steps=1).rounds(1)
    assert users(federation) == {0: 1, 1: 1}  # each has its own weight, of opposite sign
    federation.info = federation.info._replace(rate=1e-6)  # so that training changes nothing
    assert trained_users(federation) == {0: 1, 1: 1}
