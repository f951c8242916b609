"""Data sets from their published files, if available."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from e2e.command import Fedge
from e2e.experiments import records, write

BESIDE = Path(__file__).parents[3] / "shared" / "data"
SETTINGS = {
    "name": "real",
    "rounds": 3,
    "data": {"name": "mnist", "clients": 100, "partition": {"name": "shards", "per_client": 2}},
    "model": {"name": "mnist_2nn"},
    "algorithm": {"name": "fedavg", "local_steps": 10},
}

pytestmark = pytest.mark.full


@pytest.fixture
def data() -> Path:
    """The folder with data sets."""
    folder = Path(os.environ.get("FEDGE_DATA") or BESIDE).absolute()
    if not (folder / "mnist").is_dir():
        pytest.skip("needs MNIST's files in mnist/ of the folder that FEDGE_DATA names")
    return folder


def test_mnist(fedge: Fedge, tmp_path: Path, data: Path) -> None:
    ended = fedge("run", write(tmp_path, SETTINGS), "--runs", tmp_path, environment={"FEDGE_DATA": str(data)})
    assert ended.code == 0, ended.err
    lines = records(tmp_path / "real")
    assert len(lines) == 3
    assert lines[-1]["loss"] < lines[0]["loss"]
    # 10 clients take 10 steps: three times the products of 784 -> 200 -> 200 -> 10 for each of 20 samples, plus SGD's
    # two operations for each of these weights and the 410 biases
    assert lines[0]["flops"] == 10 * 10 * (20 * 3 * 198_800 + 2 * (198_800 + 410))


def test_folder_named_relative_to_where_the_run_was_started(fedge: Fedge, tmp_path: Path, data: Path) -> None:
    (tmp_path / "here").symlink_to(data)
    settings = SETTINGS | {"rounds": 1, "data": {**SETTINGS["data"], "dir": "here"}}
    assert fedge("run", write(tmp_path, settings), "--runs", tmp_path, folder=tmp_path).code == 0
    ended = fedge("resume", tmp_path / "real", "--set", "rounds=2", folder=Path("/"))
    assert ended.code == 0, ended.err
