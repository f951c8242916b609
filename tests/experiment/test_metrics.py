"""Additional metrics: at the server and at clients, in every engine, as a target, and from a user file.

The model of most tests has one weight w = 1 and the logits x and -x: it predicts class 0 for positive inputs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from math import exp, inf, log, nan
from pathlib import Path
from typing import Any

import pytest
import torch

import fedge
from federation import ENGINES, Federation, Handmade, Sign, batched_of, dense, mixed
from fedge.algorithms.fedavg import FedAvg
from fedge.config import Config, EvaluateOptions, parse
from fedge.core.algorithm import Info
from fedge.core.drive import Engine
from fedge.core.errors import ConfigError, RunError, TrainingError
from fedge.core.metric_set import MetricSet
from fedge.core.progress import Silent
from fedge.core.question import Question, Sums
from fedge.core.server_side import Limits
from fedge.data.clients import Samples
from fedge.engines.pool import Pool
from fedge.experiment.evaluation import Evaluation
from fedge.experiment.setup import Setup
from fedge.experiment.start import resume
from fedge.metrics import load_metrics
from fedge.metrics.included import F1, Auc, Perplexity, TopK
from fedge.runs import Run

BAD = 1
CHOSEN = {"f1": F1(), "auc": Auc(bins=40), "top1": TopK(k=1), "perplexity": Perplexity()}


def samples(*pairs: tuple[float, int]) -> Samples:
    return Samples(torch.tensor([[x] for x, _ in pairs]), torch.tensor([y for _, y in pairs]))


CLIENTS = Handmade([samples((1.0, 0), (-1.0, 1), (3.0, 0)), samples((2.0, 0), (2.5, 1)), samples((-2.0, 0))], 2)


def federate(engine: str = "loop", on_bad: str = "reject", **options: Any) -> Federation:
    metrics = MetricSet(CHOSEN, "classes", 2, torch.float64)
    limits = Limits(None, on_bad)  # type: ignore[arg-type]
    return Federation(FedAvg().build, CLIENTS, engine, make=Sign, limits=limits, metrics=metrics, **options)


def evaluate(made: Federation, engine: Engine | None = None, **options: Any) -> dict[str, Any]:
    evaluation = Evaluation(EvaluateOptions(**options), made.sides.server, engine or made.engine, has_test=True)
    return evaluation.measure(made.state, made.info._replace(round=1))


@pytest.mark.parametrize("at", ["server", "clients"])
@pytest.mark.parametrize("engine", ENGINES)
def test_values_by_hand(engine: str, at: Any) -> None:
    """Correct are (1, 0), (-1, 1), (3, 0) and (2, 0); class 0 for 2.5 and class 1 for -2 are both wrong."""
    found = evaluate(federate(engine), at=at)
    margins = (1, 1, 3, 2, -2.5, -2)
    loss = sum(log(1 + exp(-2 * m)) for m in margins) / 6
    assert found["f1"] == pytest.approx((2 * 3 / (4 + 4) + 2 * 1 / (2 + 2)) / 2)
    # class 1 scores -2x: 2 and -5 for its samples, against -2, -6, -4 and 4
    assert found["auc"] == pytest.approx((3 + 1) / 8)
    assert found["top1"] == found["accuracy"] == 4 / 6
    assert found["perplexity"] == pytest.approx(exp(loss))
    assert found["evaluated_at"] == at


def test_clients_answer_questions_about_other_data_without_metrics() -> None:
    made = federate()
    assert evaluate(made, train=True, user_accuracy=True).keys() & {"train_f1", "user_f1"} == set()
    answers = made.engine.evaluate(Question("train", made.clients.network.variables, (0,)), made.info)
    assert answers[0].keys() == {"count", "loss", "correct"}


def sums_of(made: Federation) -> list[dict[str, Any]]:
    """Return the answers of all clients, and the sums over the server's test set."""
    variables = made.clients.network.variables
    answers = made.engine.evaluate(Question("test", variables, range(7)), made.info._replace(round=1))
    found = [*answers.values(), made.engine.test(variables)]
    return [{name: torch.as_tensor(value) for name, value in sums.items()} for sums in found]  # type: ignore[union-attr]


def test_engines_agree_about_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """`wire` and `loop` bit for bit, `pool` and `block` too; between the two groups, to rounding.

    There is one task per client, so that many results use the same shared memory.
    """
    monkeypatch.setattr("fedge.engines.evaluate._CLIENTS", 1)
    metrics = MetricSet({"auc": Auc(), **CHOSEN}, "classes", 3, torch.float64)

    def made(engine: str) -> Federation:
        return Federation(FedAvg().build, mixed((6, 9, 9, 1, 5, 7, 12)), engine, make=dense, metrics=metrics)

    loop, wire, block = (sums_of(made(engine)) for engine in ENGINES)
    pooled = made("block")
    with closing(Pool(pooled.sides, batched_of(pooled.sides), 2, 2)) as pool:
        pooled.engine = pool
        parts = sums_of(pooled)
    for one, other in ((loop, wire), (block, parts)):
        assert [sums.keys() for sums in one] == [sums.keys() for sums in other]
        assert all(torch.equal(a[name], b[name]) for a, b in zip(one, other, strict=True) for name in a)
    for one, other in zip(loop, block, strict=True):
        for name, value in one.items():
            torch.testing.assert_close(value, other[name], rtol=1e-9, atol=1e-12, check_dtype=False)


# ---------------------------------------------------------------- hostile answers


class Lying:
    """An engine in which one client reports changed sums."""

    def __init__(self, engine: Engine, change: Callable[[Sums], Any]) -> None:
        self._engine, self._change, self.run, self.test = engine, change, engine.run, engine.test

    def evaluate(self, question: Question, info: Info) -> Mapping[int, Any]:
        found = self._engine.evaluate(question, info)
        return {client: self._change(dict(sums)) if client == BAD else sums for client, sums in found.items()}  # type: ignore[arg-type]


def double(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


LIES: dict[str, tuple[Callable[[Sums], Any], str]] = {
    "missing": (lambda s: {name: value for name, value in s.items() if name != "f1.hits"}, "its sums are "),
    "another": (lambda s: {**s, "f2.hits": double(1, 1)}, "its sums are .*'f2.hits'"),
    "short": (lambda s: {**s, "f1.hits": double(1)}, "its sum 'f1.hits' has 1 numbers, expected 2"),
    "nan": (lambda s: {**s, "f1.hits": double(nan, 0)}, "its sum 'f1.hits' is not finite"),
    "infinite": (lambda s: {**s, "perplexity.loss": double(inf)}, "its sum 'perplexity.loss' is not finite"),
    "negative": (
        lambda s: {**s, "f1.hits": double(-1, 0)},
        "its sum 'f1.hits' is impossible: it has numbers from -1 to 0",
    ),
    "more than count": (
        lambda s: {**s, "f1.true": double(3, 0)},
        "its sum 'f1.true' is impossible: .* expected 0 to 2",
    ),
    "contradiction": (lambda s: {**s, "f1.hits": double(2, 2)}, "its sums are impossible: they give f1 ="),
    "huge": (lambda s: {**s, "perplexity.loss": double(1e300)}, "its sum 'perplexity.loss' is impossible"),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_only_a_hostile_answer_is_rejected(lie: str, engine: str) -> None:
    change, reason = LIES[lie]
    made = federate(engine)
    found = evaluate(made, Lying(made.engine, change), at="clients")
    assert (found["evaluated_clients"], found["accuracy"]) == (2, 3 / 4)
    assert found["f1"] == pytest.approx((2 * 2 / (2 + 3) + 2 * 1 / (2 + 1)) / 2)
    with pytest.raises(TrainingError, match=rf"^round 1, evaluation by client 1: {reason}"):
        evaluate(federate(on_bad="stop"), Lying(made.engine, change), at="clients")


@pytest.mark.parametrize("engine", ENGINES)
def test_outputs_that_are_not_finite(engine: str) -> None:
    made = federate(engine, on_bad="stop")
    made.state = {name: torch.full_like(value, nan) for name, value in made.state.items()}
    with pytest.raises(TrainingError, match="the global model's loss on the test set is nan"):
        evaluate(made, at="server")
    with pytest.raises(TrainingError, match="evaluation by client 0: its sums are not finite"):
        evaluate(made, at="clients")


# ---------------------------------------------------------------- settings


RAW: dict[str, Any] = {
    "name": "own",
    "data": {"name": "digits", "clients": 4, "validation": 0.1},
    "model": "logistic",
    "algorithm": {"name": "fedavg", "local_steps": 1},
    "rounds": 3,
    "engine": {"name": "loop"},
    "selection": {"count": 2},
}


def configured(metrics: list[Any], **changes: Any) -> Config:
    return parse(RAW | {"evaluate": {"metrics": metrics}} | changes)


@pytest.mark.parametrize(
    ("metrics", "changes", "message"),
    [
        (["f2"], {}, r"evaluate\.metrics\[0\]\.name: unknown name 'f2', did you mean 'f1'\?"),
        (["f1", "f1"], {}, r"two metrics are recorded as 'f1'"),
        (["top5", {"name": "top", "k": 5}], {}, r"two metrics are recorded as 'top5'"),
        (["top"], {}, r"evaluate\.metrics\[0\]\.k: is required"),
        ([{"name": "auc", "bins": 1}], {}, r"evaluate\.metrics\[0\]\.bins: expected int >= 2, got 1"),
        ([], {"target": {"metric": "f1", "value": 0.5}},
         r"target\.metric: 'f1' is not measured; to measure it set evaluate\.metrics = \[\"f1\"\]"),
        (["auc"], {"target": {"metric": "ac", "value": 0.5}}, r"target\.metric: 'ac' is not measured, did you mean"),
        (["top5"], {"data": {"name": "digits", "clients": 4}, "target": {"metric": "validation_top5", "value": 0.5}},
         r"target\.metric needs a validation split, but there is none"),
    ],
)  # fmt: skip
def test_wrong_settings(metrics: list[Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configured(metrics, **changes)


@pytest.mark.parametrize(
    ("metrics", "changes", "message"),
    [
        (["rmse"], {}, r"^evaluate\.metrics: rmse is a metric for values, but the task of the data is classes"),
        ([{"name": "top", "k": 10}], {}, r"^evaluate\.metrics: top10 considers 10 of 10 classes"),
        (
            ["f1"],
            {"target": {"metric": "f1", "value": 90}},
            r"^target\.value: expected a number from 0 to 1 for f1, got 90",
        ),
    ],
)
def test_metrics_that_do_not_fit(metrics: list[Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Setup.of(configured(metrics, **changes), 1)


# ---------------------------------------------------------------- runs


MINE = """
from fedge.metrics import Metric

class Error(Metric):
    better = "lower"
    low, high = 0.0, 1.0
    per_sample = (0.0, 1.0)
    weight: float = 1.0  # of a wrong answer

    def count(self, outputs, targets):
        wrong = (outputs.argmax(-1) != targets).double() * self.weight
        return {"wrong": wrong.sum().reshape(1), "all": wrong.new_tensor([len(targets)])}

    def value(self, sums):
        return float(sums["wrong"] / sums["all"])

def half():
    return Error(weight=0.5)
"""


@pytest.fixture
def raw(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "mine.py").write_text(MINE)
    metrics = ["f1", f"{tmp_path}/mine.py:Error", {"name": f"{tmp_path}/mine.py:half"}]
    return RAW | {"evaluate": {"metrics": metrics, "at": "clients"}, "target": {"metric": "error", "value": 0.8}}


def train(raw: dict[str, Any], folder: Path, **changes: Any) -> fedge.Run:
    found = fedge.run(raw, runs=folder, progress=False, **changes)
    assert isinstance(found, fedge.Run)
    return found


def measured(found: Run) -> list[dict[str, Any]]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in found.rounds]


def test_a_user_metric_is_recorded_and_may_be_the_target(raw: dict[str, Any], tmp_path: Path) -> None:
    found = train(raw, tmp_path / "runs")
    for record in found.rounds:
        assert record["error"] == pytest.approx(1 - record["accuracy"])
        assert record["half"] == pytest.approx(record["error"] / 2)
        assert record["validation_error"] == pytest.approx(1 - record["validation_accuracy"])
    summary = found.summary or {}
    errors = [record["error"] for record in found.rounds]
    assert (summary["error"], summary["best_error"]) == (errors[-1], min(errors))
    reached = next((record["round"] for record in found.rounds if record["error"] <= 0.8), None)
    assert summary["rounds_to_target"] == reached
    assert list(found.code) == [f"{tmp_path}/mine.py"]
    assert [declared["name"] for declared in json.loads((found.path / "config.json").read_text())["metrics"]] == [
        "f1",
        "error",
        "half",
    ]


def test_engines_record_the_same(raw: dict[str, Any], tmp_path: Path) -> None:
    loop, wire = (measured(train(raw, tmp_path / name, **{"engine.name": name})) for name in ("loop", "wire"))
    assert loop == wire


@pytest.mark.full
@pytest.mark.parametrize("engine", ["pool", "ray"])
def test_workers_compute_user_metrics(engine: str, raw: dict[str, Any], tmp_path: Path) -> None:
    """`pool` and `ray` record the same as `block`, bit for bit, at the server and at clients."""
    pytest.importorskip("ray", reason="needs the extra `ray`") if engine == "ray" else None
    for at in ("server", "clients"):
        block, workers = (
            measured(train(raw, tmp_path / at / name, **{"engine.name": name, "engine.workers": 2, "evaluate.at": at}))
            for name in ("block", engine)
        )
        assert block == workers
        assert "half" in block[-1]


def test_a_run_with_a_user_metric_resumes(raw: dict[str, Any], tmp_path: Path) -> None:
    whole = train(raw, tmp_path / "whole")
    part = train(raw, tmp_path / "part", rounds=2)
    resume(part.path, ["rounds=3"], Silent())
    assert measured(Run(part.path)) == measured(whole)
    assert {**(Run(part.path).summary or {}), "seconds": 0} == {**(whole.summary or {}), "seconds": 0}
    (tmp_path / "mine.py").write_text(MINE + "\n")
    with pytest.raises(RunError, match=r"mine\.py is not the file"):
        resume(part.path, ["rounds=4"], Silent())


def test_metrics_may_be_added_on_resume(tmp_path: Path) -> None:
    found = train(RAW | {"evaluate": {"metrics": ["f1"]}}, tmp_path / "runs", rounds=1)
    resume(found.path, ['evaluate.metrics=["auc"]', "rounds=2"], Silent())
    again = Run(found.path)
    assert ["f1" in again.rounds[0], "auc" in again.rounds[1]] == [True, True]
    assert set(again.own_fields) == {"f1", "validation_f1", "auc", "validation_auc"}


def test_readers_do_not_run_user_files(raw: dict[str, Any], tmp_path: Path) -> None:
    found = train(raw, tmp_path / "runs")
    (tmp_path / "mine.py").write_text("raise RuntimeError('this must not be run')")
    again = Run(found.path)
    assert again.own_fields["error"].better == "lower"
    assert again.own_fields["validation_error"].high == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Eror", r"defines no 'Eror', did you mean 'Error'\?"),
        ("mean", r"its sums must add up over samples"),
        ("broken", r"failed: ZeroDivisionError: division by zero \(line \d+ of .*mine\.py"),
        ("text", r"must return a metric, of a class derived from fedge\.metrics\.Metric; got str"),
        ("Loss", r"'loss' is the name of another recorded field"),
        ("best_f1", r"'best_f1' is the name of another recorded field"),
        ("größe", r"expected a name of at most 64 letters"),
    ],
)
def test_files_that_define_no_metric(name: str, message: str, tmp_path: Path) -> None:
    more = (
        "\nclass mean(Error):\n    def count(self, outputs, targets):\n"
        "        return {'x': outputs.double().mean().reshape(1)}\n"
        "\ndef broken():\n    return 1 / 0\n\ndef text():\n    return 'text'\n"
        "\nclass Loss(Error):\n    pass\n\nbest_f1 = größe = half\n"
    )
    (tmp_path / "mine.py").write_text(MINE + more)
    with pytest.raises(ConfigError, match=rf"^evaluate.*metrics.*: .*{message}"):
        Setup.of(configured([f"{tmp_path}/mine.py:{name}"]), 1)


def test_metrics_by_recorded_name() -> None:
    config = configured(["perplexity", {"name": "top", "k": 3}])
    assert load_metrics(config.evaluate.metrics) == {"perplexity": Perplexity(), "top3": TopK(k=3)}
