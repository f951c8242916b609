"""Costs to reach a target, and when a run ends."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from e2e.command import Fedge
from e2e.experiments import SMALL, Settings, changed, records, summary, write

PLAIN = changed(SMALL, rounds=10, evaluate={"user_accuracy": True})
COSTS = ("bytes_up", "bytes_down", "flops", "sim_seconds")

Train = Callable[..., Path]


@pytest.fixture
def train(fedge: Fedge, tmp_path: Path) -> Train:
    """Run PLAIN with changes and return the path of its run."""

    def train(**changes: Any) -> Path:
        ended = fedge("run", write(tmp_path, changed(PLAIN, **changes)), "--runs", tmp_path / "runs")
        assert ended.code == 0, ended.err
        return tmp_path / "runs" / "small"

    return train


@pytest.fixture(scope="module")
def plain(fedge: Fedge, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The records of PLAIN, without target or budget."""
    folder = tmp_path_factory.mktemp("plain")
    assert fedge("run", write(folder, PLAIN), "--runs", folder).code == 0
    return records(folder / "small")


def total(lines: list[dict[str, Any]], name: str, round: int) -> float:
    """Return a cost summed over all rounds up to this one."""
    return sum(line[name] for line in lines[:round])


def middle_record(lines: list[dict[str, Any]], metric: str) -> tuple[int, float]:
    """Return a round with the best metric so far, neither the first nor the last, and its value."""
    better = min if metric == "loss" else max
    best = list(accumulate((line[metric] for line in lines), better))
    rounds = [i + 1 for i in range(1, len(best) - 1) if best[i] != best[i - 1]]
    return rounds[len(rounds) // 2], best[rounds[len(rounds) // 2] - 1]


@pytest.mark.parametrize("metric", ["accuracy", "user_accuracy", "loss"])
@pytest.mark.parametrize("stop", [False, True])
def test_reached(train: Train, plain: list[dict[str, Any]], metric: str, stop: bool) -> None:
    first, value = middle_record(plain, metric)
    run = train(target={"metric": metric, "value": value, "stop": stop})
    came_to = summary(run)
    assert came_to["rounds_to_target"] == first
    for name in COSTS:
        assert came_to[f"{name}_to_target"] == total(plain, name, first)
    assert records(run) == plain[: first if stop else None]
    assert came_to["ended_by"] == ("target" if stop else "rounds")
    assert came_to["bytes_up"] == total(plain, "bytes_up", first if stop else len(plain))


def test_not_reached(train: Train, plain: list[dict[str, Any]]) -> None:
    run = train(target={"metric": "accuracy", "value": 1.0, "stop": True})
    assert records(run) == plain
    came_to = summary(run)
    assert [came_to[f"{name}_to_target"] for name in ("rounds", *COSTS)] == [None] * 5
    assert came_to["ended_by"] == "rounds"


def test_a_target_is_reached_only_when_measured(train: Train, plain: list[dict[str, Any]]) -> None:
    """With an evaluation every third round, a target reached in round 1 is noticed in round 3."""
    run = train(target={"metric": "loss", "value": plain[0]["loss"], "stop": True}, evaluate={"every": 3})
    assert plain[2]["loss"] < plain[0]["loss"]
    assert summary(run)["rounds_to_target"] == 3
    assert ["loss" in line for line in records(run)] == [False, False, True]


@pytest.fixture(scope="module")
def watched(fedge: Fedge, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The records of 25 rounds with a validation split, at a learning rate at which it stops improving."""
    folder = tmp_path_factory.mktemp("watched")
    settings = changed(PLAIN, rounds=25, data={"validation": 0.2}, algorithm={"learning_rate": 2.0})
    assert fedge("run", write(folder, settings), "--runs", folder).code == 0
    return records(folder / "small")


def first_wait(lines: list[dict[str, Any]], patience: int) -> int:
    """Return the first round that ends `patience` rounds without a new best validation accuracy."""
    values = [line["validation_accuracy"] for line in lines]
    best = list(accumulate(values, max))
    return next(i + 1 for i in range(patience, len(best)) if best[i] == best[i - patience])


def test_patience_ends_a_run_also_when_resumed(fedge: Fedge, train: Train, watched: list[dict[str, Any]]) -> None:
    last, later = first_wait(watched, 2), first_wait(watched, 3)
    assert last < later <= 25  # otherwise the numbers above would prove nothing
    split = {"data": {"validation": 0.2}, "algorithm": {"learning_rate": 2.0}, "rounds": 25}
    run = train(target={"patience": 2}, **split)
    assert records(run) == watched[:last]
    assert (summary(run)["ended_by"], summary(run)["rounds_to_target"]) == ("patience", None)
    assert fedge("resume", run, "--set", "target.patience=3").code == 0
    assert records(run) == watched[:later]


@pytest.mark.parametrize(
    "settings",
    [
        {"target": {"patience": 2}},
        {"schedule": {"learning_rate": "step"}},
        {"target": {"metric": "validation_loss", "value": 1.0}},
    ],
)
def test_the_test_set_does_not_influence_training(fedge: Fedge, tmp_path: Path, settings: Settings) -> None:
    ended = fedge("run", write(tmp_path, changed(PLAIN, **settings)), "--runs", tmp_path / "runs")
    assert ended.code == 2
    assert "needs a validation split, but there is none: set data.validation" in ended.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["sim_seconds", "bytes_up", "flops", "local_steps"])
@pytest.mark.parametrize(("excess", "last"), [(1.0, 3), (1.001, 4)])
def test_budget(train: Train, plain: list[dict[str, Any]], name: str, excess: float, last: int) -> None:
    """A budget of exactly three rounds ends the run after three rounds; a little more, only after the fourth."""
    run = train(budget={name: total(plain, name, 3) * excess}, evaluate={"every": 100})
    came_to, lines = summary(run), records(run)
    assert came_to["ended_by"] == name
    assert came_to["rounds"] == len(lines) == last
    assert came_to[name] == total(plain, name, last)
    assert ["accuracy" in line for line in lines] == [False] * (last - 1) + [True]  # the last round is measured
    assert came_to["accuracy"] == plain[last - 1]["accuracy"]


def test_first_of_several(train: Train, plain: list[dict[str, Any]]) -> None:
    run = train(budget={"flops": total(plain, "flops", 5), "local_steps": total(plain, "local_steps", 2)})
    assert summary(run)["ended_by"] == "local_steps"
    assert records(run) == plain[:2]


def test_a_raised_budget_continues_the_run(fedge: Fedge, train: Train, plain: list[dict[str, Any]]) -> None:
    run = train(budget={"local_steps": total(plain, "local_steps", 2)})
    assert fedge("resume", run, "--set", f"budget.local_steps={total(plain, 'local_steps', 4)}").code == 0
    assert records(run) == plain[:4]


@pytest.mark.parametrize("before", [{}, {"target": {"value": 0.01}}], ids=["none", "lower"])
def test_target_given_later(
    fedge: Fedge, train: Train, plain: list[dict[str, Any]], before: dict[str, Settings]
) -> None:
    """The round in which it was first reached is found in the records."""
    first, value = middle_record(plain[:8], "accuracy")
    run = train(**before, rounds=8)
    assert fedge("resume", run, "--set", f"target.value={value}", "--set", "rounds=10").code == 0
    assert summary(run)["rounds_to_target"] == first
