"""Evaluation at the server or at the clients, with the same model of one weight w as in test_evaluation.py.

Its logits are w*x for class 0 and -w*x for class 1, so the loss of a sample is log(1 + exp(-2m)) with the margin
m = w*x for class 0 and -w*x for class 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import exp, inf, log, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedge
from federation import Federation, Handmade, Sign, points, slope
from fedge.algorithms.fedavg import FedAvg
from fedge.algorithms.independent import Independent
from fedge.algorithms.mtfl import mtfl
from fedge.algorithms.per_fedavg import PerFedAvg
from fedge.api.run import Run
from fedge.client.client_side import ClientSide
from fedge.client.serve import Served, serve
from fedge.config import EvaluateOptions
from fedge.core import message
from fedge.core.algorithm import Build, Info
from fedge.core.drive import Engine
from fedge.core.errors import ConfigError, DataError, TrainingError
from fedge.core.message import EvaluationAnswer
from fedge.core.question import Question, Sums, write_sums
from fedge.core.server_side import Limits
from fedge.data.clients import Samples
from fedge.engines import wire
from fedge.experiment.evaluation import Evaluation
from fedge.experiment.setup import Setup

ENGINES = ("loop", "wire", "block")
BAD = 1
PLAIN = FedAvg().build


def samples(*pairs: tuple[float, int]) -> Samples:
    return Samples(torch.tensor([[x] for x, _ in pairs]).reshape(-1, 1), torch.tensor([y for _, y in pairs]).long())


RIGHT = samples((1.0, 0), (-1.0, 1), (2.0, 0))
HALF = samples((1.0, 0), (1.0, 1))
WRONG = samples((1.0, 1), (2.0, 1), (-1.0, 0))


def loss(*margins: float) -> float:
    return sum(log(1 + exp(-2 * m)) for m in margins)


def federate(engine: str = "loop", on_bad: str = "reject", build: Build = PLAIN, **options: Any) -> Federation:
    clients = Handmade([RIGHT, HALF, WRONG], 2)
    return Federation(build, clients, engine, make=Sign, limits=Limits(None, on_bad), **options)  # type: ignore[arg-type]


def evaluate(
    made: Federation, has_test: bool = True, engine: Engine | None = None, test_sizes: Any = None, **options: Any
) -> dict[str, Any]:
    server = made.sides.server
    if test_sizes is not None:
        object.__setattr__(server, "clients", server.clients._replace(test_sizes=np.array(test_sizes)))
    evaluation = Evaluation(EvaluateOptions(**options), server, engine or made.engine, has_test)
    return evaluation.measure(made.state, made.info._replace(round=1))


# ---------------------------------------------------------------- server or clients


@pytest.mark.parametrize(
    ("at", "has_test", "expected"),
    [(None, True, "server"), (None, False, "clients"), ("clients", True, "clients"), ("server", True, "server")],
)
def test_evaluation_is_at_the_server_if_it_has_a_test_set(at: Any, has_test: bool, expected: str) -> None:
    asked: list[str] = []

    class Watched:
        def __init__(self, engine: Engine) -> None:
            self.run, self._engine = engine.run, engine

        def evaluate(self, question: Question, info: Info) -> Mapping[int, Sums | str]:
            asked.append("clients")
            return self._engine.evaluate(question, info)

        def test(self, variables: Any) -> Sums:
            asked.append("server")
            return self._engine.test(variables)

    made = federate()
    assert evaluate(made, has_test, Watched(made.engine), at=at)["evaluated_at"] == expected
    assert asked == [expected]


@pytest.mark.parametrize(("at", "expected"), [("server", ["test"]), ("clients", ["test"])])
def test_clients_are_asked_once(at: Any, expected: list[str]) -> None:
    """Their answers give both the accuracy of the global model and theirs; bad answers are not requested again."""
    asked: list[str] = []

    class Watched(Lying):
        def evaluate(self, question: Question, info: Info) -> dict[int, Any]:
            asked.append(question.measure)
            return super().evaluate(question, info)

    made = federate()
    found = evaluate(made, engine=Watched(made.engine, LIES["nan"][0]), at=at, user_accuracy=True)
    assert asked == expected
    assert (found["user_accuracy"], found["user_accuracy_std"]) == (0.5, 0.5)


def test_a_server_without_a_test_set_cannot_evaluate() -> None:
    with pytest.raises(ConfigError, match=r'^evaluate\.at: the server has no test set; set evaluate\.at = "clients"$'):
        evaluate(federate(), has_test=False, at="server")


@pytest.mark.parametrize("engine", ENGINES)
def test_sums_over_clients_by_hand(engine: str) -> None:
    """3 of 3, 1 of 2 and 0 of 3 are correct: by samples 4 of 8, not (1 + 1/2 + 0)/3."""
    found = evaluate(federate(engine), at="clients", train=True, user_accuracy=True)
    mean = loss(1, 1, 2, 1, -1, -1, -2, -1) / 8
    assert found == {
        "accuracy": 0.5,
        "loss": pytest.approx(mean, abs=1e-12),
        "train_accuracy": 0.5,
        "train_eval_loss": pytest.approx(mean, abs=1e-12),
        "generalisation_gap": pytest.approx(0, abs=1e-12),
        "user_accuracy": 0.5,
        "user_accuracy_std": pytest.approx((1 / 6) ** 0.5),  # of 1, 1/2 and 0
        "user_accuracy_min": 0,
        "evaluated_at": "clients",
        "evaluated_clients": 3,
    }


@pytest.mark.parametrize("engine", ENGINES)
def test_a_regression_is_summed_too(engine: str) -> None:
    made = Federation(FedAvg().build, points(0, 4), engine, make=slope)
    assert evaluate(made, at="clients") == {
        "loss": 2.5,
        "evaluated_at": "clients",
        "evaluated_clients": 2,
    }  # (1 + 9)/2/2


OWN_MODELS: dict[str, Build] = {
    "fedavg": FedAvg().build,
    "independent": Independent().build,
    "mtfl": mtfl(FedAvg().build, ["w"]),
    "per_fedavg": PerFedAvg(alpha=10.0).build,
}


@pytest.mark.parametrize("name", OWN_MODELS)
def test_engines_agree_about_users(name: str) -> None:
    """Before and after training, for clients with private state and for those that adapt."""
    options = {"at": "clients", "train": True, "user_accuracy": True, "after_training": True}
    loop, over_wire, block = (
        evaluate(federate(engine, build=OWN_MODELS[name], rate=0.7).rounds(2), **options) for engine in ENGINES
    )
    assert {"user_accuracy", "user_accuracy_after", "train_accuracy"} <= loop.keys()
    assert over_wire == loop
    assert block.keys() == loop.keys()
    assert {k: v for k, v in block.items() if k != "evaluated_at"} == pytest.approx(
        {k: v for k, v in loop.items() if k != "evaluated_at"}, abs=1e-6
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_users_are_measured_with_their_own_models(engine: str) -> None:
    """A step of rate 10 on misclassified samples flips the sign of client 2's own weight only."""
    made = federate(engine, build=mtfl(FedAvg().build, ["w"]), rate=10.0, steps=1)
    before = evaluate(made, at="clients", user_accuracy=True, after_training=True)
    assert (before["user_accuracy"], before["user_accuracy_min"]) == (0.5, 0)
    assert before["user_accuracy_after"] > 0.5  # nothing is stored
    made.round((2,))
    after = evaluate(made, at="clients", user_accuracy=True)
    assert after["user_accuracy"] == pytest.approx((1 + 0.5 + 1) / 3)
    assert after["accuracy"] == 0.5  # the global model still has the initial weight


@pytest.mark.parametrize("engine", ENGINES)
def test_users_adapt_before_they_are_tested(engine: str) -> None:
    still, turned = (
        evaluate(federate(engine, build=PerFedAvg(alpha=alpha).build), at="clients", user_accuracy=True)
        for alpha in (1e-6, 10.0)
    )
    assert still["user_accuracy_min"] == 0
    assert turned["user_accuracy_min"] == 0.5  # client 1; client 2 now classifies all its samples correctly


# ---------------------------------------------------------------- hostile answers


class Lying:
    """An engine in which one client reports changed sums."""

    def __init__(self, engine: Engine, change: Callable[[Sums], Any]) -> None:
        self._engine, self._change, self.run, self.test = engine, change, engine.run, engine.test

    def evaluate(self, question: Question, info: Info) -> dict[int, Any]:
        found = self._engine.evaluate(question, info)
        return {client: self._change(dict(sums)) if client == BAD else sums for client, sums in found.items()}  # type: ignore[arg-type]


LIES: dict[str, tuple[Callable[[Sums], Any], str]] = {
    "negative count": (lambda s: {**s, "count": -2.0}, "its sums are impossible: correct 1, count -2"),
    "no count": (lambda s: {**s, "count": 0.0, "correct": 0.0}, "expected a count from 1 to 2"),
    "half a sample": (lambda s: {**s, "count": 1.5}, "expected a count from 1 to 2"),
    "count": (lambda s: {**s, "count": 3.0}, "its sums are impossible: correct 1, count 3, .* a count from 1 to 2"),
    "more correct than samples": (lambda s: {**s, "correct": 2.5}, "expected 0 <= correct <= count"),
    "negative correct": (lambda s: {**s, "correct": -1.0}, "expected 0 <= correct <= count"),
    "negative loss": (lambda s: {**s, "loss": -1.0}, "a loss that is not negative"),
    "huge loss": (lambda s: {**s, "loss": 1e308}, "its sums are impossible"),
    "nan": (lambda s: {**s, "loss": nan}, "its sums are not finite: correct 1, count 2, loss nan"),
    "infinite": (lambda s: {**s, "count": inf}, "its sums are not finite"),
    "missing": (lambda s: {"count": 2.0, "loss": 1.0}, "its sums are 'count', 'loss', expected 'correct', 'count'"),
    "more": (lambda s: {**s, "f1": 1.0}, "its sums are 'correct', 'count', 'f1', 'loss', expected"),
    "unreadable": (lambda s: "its answer cannot be read: x", "its answer cannot be read: x"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_hostile_answer_is_omitted(lie: str) -> None:
    """Without client 1, 3 of 6 are correct."""
    made = federate()
    engine = Lying(made.engine, LIES[lie][0])
    found = evaluate(made, engine=engine, test_sizes=(3, 2, 3), at="clients", user_accuracy=True, train=True)
    mean = loss(1, 1, 2, -1, -2, -1) / 6
    assert found["accuracy"] == found["train_accuracy"] == 0.5
    assert found["loss"] == pytest.approx(mean, abs=1e-12)
    assert found["train_eval_loss"] == pytest.approx(mean, abs=1e-12)
    assert (found["user_accuracy"], found["user_accuracy_std"]) == (0.5, 0.5)  # of 1 and 0


@pytest.mark.parametrize("lie", LIES)
def test_by_default_a_hostile_answer_stops_the_run(lie: str) -> None:
    change, reason = LIES[lie]
    made = federate(on_bad="stop")
    with pytest.raises(TrainingError, match=rf"^round 1, evaluation by client 1: .*{reason}.*reduce\.on_bad"):
        evaluate(made, engine=Lying(made.engine, change), test_sizes=(3, 2, 3), at="clients")


def test_counts_are_checked_against_the_requested_data() -> None:
    """Client 1 registered 2 training samples and 5 test samples: 3 are too many only for training."""
    made = federate()
    engine = Lying(made.engine, lambda sums: {**sums, "count": 3.0})
    found = evaluate(made, engine=engine, test_sizes=(3, 5, 3), at="clients", train=True)
    assert found["accuracy"] == 4 / 9
    assert found["train_accuracy"] == 3 / 6


@pytest.mark.parametrize("at", ["server", "clients"])
def test_an_evaluation_whose_answers_are_all_bad_measures_nothing(at: Any) -> None:
    class AllLying(Lying):
        def evaluate(self, question: Question, info: Info) -> dict[int, Any]:
            return {client: {"count": nan} for client in self._engine.evaluate(question, info)}

    made = federate()
    found = evaluate(
        made, engine=AllLying(made.engine, dict), at=at, train=True, user_accuracy=True, after_training=True
    )
    assert found.keys() == ({"accuracy", "loss", "evaluated_at"} if at == "server" else {"evaluated_at"})


def test_without_any_answer_the_run_stops_by_default() -> None:
    class Silence(Lying):
        def evaluate(self, question: Question, info: Info) -> dict[int, Any]:
            return {}

    made = federate(on_bad="stop")
    with pytest.raises(DataError, match="no client answered with its test data"):
        evaluate(made, engine=Silence(made.engine, dict), at="clients")


def renamed(data: bytes) -> bytes:
    return message.pack(EvaluationAnswer(0), message.unpack(data, EvaluationAnswer)[1])


def single(data: bytes) -> bytes:
    tree = message.unpack(data, EvaluationAnswer)[1]
    return message.pack(EvaluationAnswer(BAD), {name: value.float() for name, value in tree.items()})


BYTES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut": (lambda data: data[:-1], "its answer cannot be read: message is cut short"),
    "nothing": (lambda data: b"", "its answer cannot be read: not a message"),
    "another name": (renamed, "it claims to be client 0"),
    "float32": (single, "its answer cannot be read: expected the sum .* as float64"),
    "nan": (
        lambda data: message.pack(EvaluationAnswer(BAD), write_sums({"count": 2.0, "correct": 1.0, "loss": nan})),
        "its sums are not finite",
    ),
}


@pytest.mark.parametrize("name", BYTES)
def test_a_hostile_answer_over_a_wire(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, reason = BYTES[name]

    def served(side: ClientSide, client: int, request: bytes) -> Served:
        honest = serve(side, client, request)
        return honest._replace(data=change(honest.data)) if client == BAD else honest

    monkeypatch.setattr(wire, "serve", served)
    found = evaluate(federate("wire"), at="clients", user_accuracy=True)
    assert (found["accuracy"], found["user_accuracy_std"]) == (0.5, 0.5)
    assert found["loss"] == pytest.approx(loss(1, 1, 2, -1, -2, -1) / 6, abs=1e-12)
    with pytest.raises(TrainingError, match=f"^round 1, evaluation by client 1: {reason}"):
        evaluate(federate("wire", on_bad="stop"), at="clients")


# ---------------------------------------------------------------- runs

SETTINGS: dict[str, Any] = {
    "name": "places",
    "rounds": 2,
    "data": {"name": "digits", "clients": 5},
    "model": {"name": "logistic"},
    "algorithm": {"name": "fedavg", "local_steps": 2},
    "evaluate": {"user_accuracy": True, "train": True},
    "engine": {"name": "loop"},
}


def run(folder: Path, **changes: Any) -> Run:
    made = fedge.run(SETTINGS, runs=folder, **changes)
    assert isinstance(made, Run)
    return made


@pytest.mark.parametrize("engine", ["loop", "wire", "block"])
def test_evaluation_by_clients_costs_nothing_and_agrees(engine: str, tmp_path: Path) -> None:
    """The server's test set is that of all clients together."""
    here, there = (
        run(tmp_path / at, **{"evaluate.at": at, "engine.name": engine}).rounds for at in ("server", "clients")
    )
    for one, other in zip(here, there, strict=True):
        assert (one.pop("evaluated_at"), other.pop("evaluated_at")) == ("server", "clients")
        for name in ("messages", "bytes_down", "bytes_up", "local_steps", "flops", "sim_seconds", "energy_j"):
            assert one[name] == other[name], name
        assert one["accuracy"] == other["accuracy"]
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-6)


def test_a_run_without_a_test_set_at_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Setup, "test", None)
    assert {record["evaluated_at"] for record in run(tmp_path).rounds} == {"clients"}
    with pytest.raises(ConfigError, match=r'evaluate\.at = "clients"'):
        run(tmp_path, **{"evaluate.at": "server"})
