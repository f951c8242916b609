"""Servers and clients that are killed, and start again."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.command import Fedge
from e2e.experiments import Settings, changed
from net.deployment import Deployment

FEDAVG: Settings = {
    "name": "faults",
    "seed": 3,
    "rounds": 3,
    "data": {"name": "digits", "clients": 3},
    "model": {"name": "logistic"},
    "engine": {"name": "loop"},
    "algorithm": {"name": "fedavg", "local_steps": 2},
    "selection": {"fraction": 1.0},
    "net": {"min_clients": 3, "wait_s": 100.0, "lease_s": 20.0},
}


def test_undisturbed(fedge: Fedge, tmp_path: Path) -> None:
    with Deployment(fedge, tmp_path, changed(FEDAVG)) as deployment:
        deployment.start_server()
        deployment.start_clients()
        deployment.finish()
        deployment.assert_equals_simulation()
