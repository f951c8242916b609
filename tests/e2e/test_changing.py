"""Schedules and other state that changes between rounds continue after a stop as if there had been none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedge
from e2e.experiments import Settings, Stopping, assert_same, changed, records
from fedge.core.progress import Progress, Silent
from fedge.experiment.start import resume
from fedge.runs.read import Run

pytestmark = pytest.mark.full

PLAIN: Settings = {
    "name": "changing",
    "seed": 5,
    "rounds": 9,
    "data": {"name": "digits", "clients": 12, "partition": {"name": "shards", "per_client": 2}, "validation": 0.2},
    "model": {"name": "logistic"},
    "algorithm": {"name": "fedsgd", "learning_rate": 0.1, "local_steps": 20},
    "selection": {"count": 6},
    "checkpoint": {"every": 2},
}
CHANGING: dict[str, dict[str, Any]] = {
    "in a window": {"schedule": {"local_steps": {"name": "error", "window": 5}}},
    "on a plateau": {"schedule": {"learning_rate": {"name": "step", "patience": 2, "tol": 0.5}}},
    "by two rules": {
        "schedule": {
            "local_steps": {"name": "product", "rules": [{"name": "step", "patience": 1, "tol": 0.5}, "rounds"]}
        }
    },
    "on the clock": {"schedule": {"server_learning_rate": {"name": "warmup", "epochs": 4}}},
    "in drift": {"data": {"drift": {"name": "label_shift", "until": 8}}},
    "with a residual": {"codec": {"up": ["error_feedback", "sparsify(0.9)", "uniq", "golomb"], "down": ["qsgd(8)"]}},
    "in clusters": {"cluster": {"count": 2, "round": 3}},
}


def run(settings: Settings, runs: Path, progress: Progress | None = None) -> Path:
    fedge.run(settings, runs=runs, progress=progress)
    return runs / "changing"


@pytest.mark.parametrize("what", CHANGING)
def test_stopped_and_resumed(what: str, tmp_path: Path) -> None:
    settings = changed(PLAIN, **CHANGING[what])
    undisturbed = run(settings, tmp_path / "undisturbed")
    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "stopped", Stopping())
    stopped = tmp_path / "stopped" / "changing"
    assert len(Run(stopped).rounds) == 5
    resume(stopped, [], Silent())
    assert_same(undisturbed, stopped)


def test_they_do_change(tmp_path: Path) -> None:
    """Each setting changes the run."""
    plain = records(run(PLAIN, tmp_path / "plain"))
    for what, settings in CHANGING.items():
        assert records(run(changed(PLAIN, **settings), tmp_path / what)) != plain, what


def test_steps_fall_with_the_loss(tmp_path: Path) -> None:
    path = run(changed(PLAIN, **CHANGING["in a window"]), tmp_path)
    steps = [record["num_local_steps"] for record in Run(path).rounds]
    assert steps[:5] == [20] * 5  # the window is not full until then
    assert steps[-1] < 20


@pytest.mark.parametrize(
    "algorithm", ["scaffold", *(pytest.param(name, marks=pytest.mark.full) for name in ("fedavg_adam", "pfedme"))]
)
def test_another_engine_continues_with_private_state(algorithm: str, tmp_path: Path) -> None:
    """Private tensors, their optimiser's statistics and control variates are kept unchanged."""
    private = changed(
        PLAIN,
        rounds=6,
        model="mtfl_2nn",
        algorithm={"name": algorithm, "learning_rate": 0.01, "local_steps": 3},
        personal={"private": "bn"},
        engine={"name": "loop", "dtype": "float64"},
    )
    undisturbed = run(private, tmp_path / "undisturbed")
    path = run(changed(private, rounds=3), tmp_path / "changed")
    resume(path, ["rounds=6", "engine.name=wire"], Silent())
    assert records(path) == records(undisturbed)

    other = run(changed(private, rounds=3), tmp_path / "block")
    resume(other, ["rounds=6", "engine.name=block"], Silent())
    for found, expected in zip(records(other), records(undisturbed), strict=True):
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-6)
