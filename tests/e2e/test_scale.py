"""Clients that do not take part in a round cost nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.command import Fedge
from e2e.experiments import records, write

MILLION = {
    "name": "million",
    "rounds": 20,
    "data": {"name": "synthetic", "clients": 1_000_000, "features": 60},
    "model": {"name": "logistic"},
    "algorithm": {"name": "fedavg", "local_steps": 5},
    "selection": {"count": 100},
    "evaluate": {"user_accuracy": True, "users": "selected"},
}


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_a_million_clients(fedge: Fedge, tmp_path: Path, algorithm: str) -> None:
    settings = MILLION | {"algorithm": {"name": algorithm, "local_steps": 5}}
    ended = fedge("run", write(tmp_path, settings), "--runs", tmp_path)
    assert ended.code == 0, ended.err
    assert ended.peak_kb < 1_500_000
    lines = records(tmp_path / "million")
    assert [line["reported"] for line in lines] == [100] * 20
    assert lines[-1]["accuracy"] > lines[0]["accuracy"] + 0.1
    # the cohorts of 20 rounds, and the next one, whose accuracy was measured
    assert len((tmp_path / "million" / "clients.jsonl").read_text().splitlines()) <= 2100
