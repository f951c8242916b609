"""The same experiment gives the same results: exactly in another process, to float rounding on another engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.command import Fedge
from e2e.experiments import SMALL, Settings, assert_same, changed, records, write

PERSONAL = changed(
    SMALL,
    rounds=3,
    model={"name": "mtfl_2nn"},
    algorithm={"name": "fedavg_adam", "local_steps": 2, "learning_rate": 0.01},
    personal={"private": "bn"},
    evaluate={"user_accuracy": True},
    selection={"count": 2},
)
LAYERED = changed(SMALL, rounds=4, model={"name": "mnist_2nn"})
METRICS = ("accuracy", "loss", "train_loss", "user_accuracy", "user_accuracy_std", "user_accuracy_min")

Train = Callable[..., Path]


@pytest.fixture
def train(fedge: Fedge, tmp_path: Path) -> Train:
    """Run an experiment on an engine and return the path of its run."""

    def train(settings: Settings, engine: str, folder: str, dtype: str = "float32") -> Path:
        settings = changed(settings, engine={"name": engine, "dtype": dtype})
        ended = fedge("run", write(tmp_path, settings), "--runs", tmp_path / folder)
        assert ended.code == 0, ended.err
        return tmp_path / folder / "small"

    return train


def parts(run: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the metrics of each round, and everything else."""
    lines = records(run)
    metrics = [{name: line[name] for name in METRICS if name in line} for line in lines]
    return metrics, [{name: value for name, value in line.items() if name not in METRICS} for line in lines]


@pytest.mark.parametrize("engine", ["loop", "wire", "block"])
def test_twice(train: Train, engine: str) -> None:
    assert_same(train(PERSONAL, engine, "first"), train(PERSONAL, engine, "second"))


# The gradient of a bias before BatchNorm is only rounding noise, which Adam scales up: hence float64.
@pytest.mark.parametrize(
    ("settings", "dtype"), [(PERSONAL, "float64"), (LAYERED, "float32")], ids=["personal", "layered"]
)
def test_engines_agree(train: Train, settings: Settings, dtype: str) -> None:
    loop, wire, block = (train(settings, engine, engine, dtype) for engine in ("loop", "wire", "block"))
    assert records(wire) == records(loop)
    metrics, costs = parts(loop)
    batched, batched_costs = parts(block)
    assert batched_costs == costs
    assert len(metrics[0]) == (6 if "personal" in settings else 3)
    assert batched == [pytest.approx(line, rel=0, abs=1e-4) for line in metrics]


def test_another_seed_is_another_run(train: Train) -> None:
    first, second = train(SMALL, "auto", "first"), train(changed(SMALL, seed=4), "auto", "second")
    assert [line["train_loss"] for line in records(first)] != [line["train_loss"] for line in records(second)]
