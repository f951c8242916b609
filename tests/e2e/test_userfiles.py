"""User models and data, and regression."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import fedge as library
from e2e.command import Fedge
from e2e.experiments import SMALL, changed, records, summary, write

MINE = """
import numpy as np
import torch
from torch import nn

def blobs(num_samples=300):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, num_samples)
    x = rng.normal(size=(num_samples, 2, 2)) + 4 * np.eye(4)[y].reshape(-1, 2, 2)
    return x, y, x[:90], y[:90]

def line():
    x = torch.linspace(-1, 1, 200)[:, None]
    return x, 3 * x, x[::4], 3 * x[::4]

def lists():
    x = [[float(i % 2), 1.0] for i in range(60)]
    return x, [i % 2 for i in range(60)], x[:10], [i % 2 for i in range(10)]

def layers(shape, num_outputs, width=8):
    return nn.Sequential(nn.Flatten(), nn.Linear(4, width), nn.ReLU(), nn.Linear(width, num_outputs))

def smooth(shape, num_outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, num_outputs))

class Own(nn.Module):
    def __init__(self, shape, num_outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(int(np.prod(shape)), num_outputs))
        self.bias = nn.Parameter(torch.zeros(num_outputs))

    def forward(self, x):
        return x.flatten(1) @ self.weight + self.bias
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The user's working directory."""
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


@pytest.mark.parametrize(
    ("model", "reason"),
    [("layers", None), ("smooth", "Softplus has no batched kernel"), ("Own", "weight is used outside of a layer")],
)
def test_any_module(fedge: Fedge, folder: Path, model: str, reason: str | None) -> None:
    """A module without kernels uses torch.func, with a notice."""
    settings = changed(SMALL, data={"name": "mine.py:blobs", "clients": 10}, model={"name": f"mine.py:{model}"})
    settings = changed(settings, algorithm={"local_steps": 20})
    ended = fedge("run", write(folder, settings), "--runs", folder / "runs")
    assert ended.code == 0, ended.err
    assert (f"engine: torch.func, because {reason}\n" in ended.err) == (reason is not None)
    assert records(folder / "runs" / "small")[-1]["accuracy"] > 0.8  # a third without learning


def test_options_reach_the_functions(fedge: Fedge, folder: Path) -> None:
    settings = changed(
        SMALL,
        data={"name": "mine.py:blobs", "clients": 10, "options": {"num_samples": 100}},
        model={"name": "mine.py:layers", "options": {"width": 3}},
    )
    ended = fedge("run", write(folder, settings), "--runs", folder / "runs")
    assert ended.code == 0, ended.err
    assert "10 clients have fewer samples than a batch of 20" in ended.err  # 10 each
    (step,) = {line["flops"] / line["local_steps"] for line in records(folder / "runs" / "small")}
    # three times the products of 4 -> 3 -> 3 for each sample, plus SGD's two operations for each weight and bias
    assert step == 10 * 3 * (4 * 3 + 3 * 3) + 2 * (4 * 3 + 3 + 3 * 3 + 3)


def test_plain_lists(fedge: Fedge, folder: Path) -> None:
    settings = changed(SMALL, data={"name": "mine.py:lists", "clients": 4}, model={"name": "mine.py:Own"})
    assert fedge("run", write(folder, settings), "--runs", folder / "runs").code == 0
    assert summary(folder / "runs" / "small")["accuracy"] == 1.0


def test_resumed_from_elsewhere(fedge: Fedge, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The files are found although the experiment names them relative to itself."""
    settings = changed(SMALL, data={"name": "mine.py:blobs", "clients": 10}, model={"name": "mine.py:layers"})
    write(folder, settings)
    assert fedge("run", folder.name + "/experiment.toml", "--runs", folder / "runs", folder=folder.parent).code == 0
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    ended = fedge("resume", folder / "runs" / "small", "--set", "rounds=8", folder=elsewhere)
    assert ended.code == 0, ended.err
    assert len(records(folder / "runs" / "small")) == 8


def test_regression_on_user_data(folder: Path) -> None:
    """Every client has the same optimum, y = 3 x, so the federation finds it."""
    settings = changed(
        SMALL,
        rounds=40,
        data={"name": f"{folder}/mine.py:line", "clients": 4},
        model={"name": "linear"},
        algorithm={"local_steps": 10, "learning_rate": 0.3},
        selection={"count": 2},
    )
    run = library.run(settings, runs=folder / "runs")
    assert isinstance(run, library.Run)
    assert run.summary is not None
    assert run.summary["loss"] < 1e-6
    assert not any("accuracy" in line for line in run.rounds)
    predicted = run.model(torch.tensor([[2.0]]))
    assert predicted.item() == pytest.approx(6, abs=0.01)


def test_the_returned_model_is_the_evaluated_one(folder: Path) -> None:
    data = {"name": f"{folder}/mine.py:blobs", "clients": 10}
    run = library.run(changed(SMALL, data=data, model={"name": f"{folder}/mine.py:smooth"}), runs=folder / "runs")
    x, y = _blobs(folder)
    with torch.no_grad():
        hits = run.model(x[:90]).argmax(1) == y[:90]
    assert float(hits.double().mean()) == run.rounds[-1]["accuracy"]


@pytest.mark.parametrize("engine", ["loop", "block"])
def test_quadratics_of_one_optimum(fedge: Fedge, folder: Path, engine: str) -> None:
    """Without noise, and with clients that differ only in curvature, the loss converges to zero."""
    settings = changed(
        SMALL,
        rounds=20,
        data={"name": "synthetic", "kind": "quadratic", "features": 5, "heterogeneity": 0.0, "deviation": 0.0},
        model={"name": "linear"},
        algorithm={"name": "fedavg", "local_epochs": 1},
        engine={"name": engine},
    )
    ended = fedge("run", write(folder, settings), "--runs", folder / "runs")
    assert ended.code == 0, ended.err
    losses = [line["loss"] for line in records(folder / "runs" / "small")]
    assert losses[-1] < 1e-6 * losses[0]
    assert summary(folder / "runs" / "small")["best_loss"] == min(losses)


def _blobs(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    names: dict[str, object] = {}
    exec((folder / "mine.py").read_text(), names)
    x, y, _, _ = names["blobs"]()  # type: ignore[operator]
    return torch.from_numpy(x).float(), torch.from_numpy(y)
