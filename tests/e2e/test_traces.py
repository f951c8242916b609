"""Traces do not change a run, and are the same if it is stopped and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedge
from e2e.experiments import Settings, Stopping, assert_same, changed, kept, records, summary
from fedge.core.progress import Progress, Silent
from fedge.experiment.start import resume
from fedge.runs.checkpoint import load
from fedge.runs.read import Run

pytestmark = pytest.mark.full

PLAIN: Settings = {
    "name": "traced",
    "seed": 5,
    "rounds": 8,
    "data": {"name": "digits", "clients": 12, "noise": {"fraction": 0.25, "std": 3.0}},
    "model": {"name": "mtfl_2nn"},
    "algorithm": {"name": "fedavg_adam", "learning_rate": 0.01, "local_steps": 3},
    "personal": {"private": "bn"},
    "selection": {"count": 6},
    "checkpoint": {"every": 3},
}
TRACED = changed(PLAIN, trace={"clients": 3, "every": 2})


def run(settings: Settings, runs: Path, progress: Progress | None = None) -> Path:
    fedge.run(settings, runs=runs, progress=progress)
    return runs / "traced"


def state(path: Path) -> dict[str, Any]:
    checkpoint = load(path / "checkpoint" / "state.safetensors")
    assert checkpoint is not None
    return {name: value.numpy().tobytes() for name, value in checkpoint.state.items()}


def test_nothing_else_changes(tmp_path: Path) -> None:
    plain, traced = run(PLAIN, tmp_path / "plain"), run(TRACED, tmp_path / "traced")
    assert records(traced) == records(plain)
    assert summary(traced) == summary(plain)
    assert state(traced) == state(plain)
    assert kept(traced) == kept(plain)
    assert not (plain / "traces.jsonl").exists()

    lines = Run(traced).traces
    assert {line["round"] for line in lines} == {2, 4, 6, 8}
    one = [line for line in lines if line["round"] == 4]
    # three clients: before training and after three steps, then the aggregation; plus one comparison of all
    assert [line["kind"] for line in one] == ["step"] * 12 + ["aggregation"] * 3 + ["updates"]
    assert {line["group"] for line in lines if "group" in line} == {"clean", "noisy"}


def test_stopped_and_resumed(tmp_path: Path) -> None:
    undisturbed = run(TRACED, tmp_path / "undisturbed")
    stopped = tmp_path / "stopped" / "traced"
    with pytest.raises(KeyboardInterrupt):
        run(TRACED, stopped.parent, Stopping())
    assert {line["round"] for line in Run(stopped).traces} == {2, 4}
    resume(stopped, [], Silent())
    assert_same(stopped, undisturbed)
    assert (stopped / "traces.jsonl").read_bytes() == (undisturbed / "traces.jsonl").read_bytes()
