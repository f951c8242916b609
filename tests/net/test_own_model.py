"""User-defined parts, which a client uses only if the file is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.command import Fedge
from e2e.experiments import changed
from net.deployment import Deployment
from net.scenes import FEDAVG
from own_parts import write_own

MODEL = """
from torch import nn

def build(shape, num_outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, num_outputs))
"""


def test_allowed_file(fedge: Fedge, tmp_path: Path) -> None:
    server, client = tmp_path / "my_model.py", tmp_path / "copies" / "their_model.py"
    client.parent.mkdir()
    server.write_text(MODEL)
    client.write_text(MODEL)
    settings = changed(FEDAVG, model={"name": f"{server}:build"})
    with Deployment(fedge, tmp_path, settings) as deployment:
        deployment.start_server()
        refused = deployment.start_client(0).wait()
        assert refused.code == 2
        assert "the server asks for my_model.py:build (SHA-256 " in refused.err
        assert "which is not allowed" in refused.err
        for number in range(deployment.num_clients):
            deployment.start_client(number, "--allow", client)
        deployment.finish()
        deployment.assert_equals_simulation()


@pytest.mark.full
def test_allowed_algorithm_model_and_codec(fedge: Fedge, tmp_path: Path) -> None:
    """The schedule needs no permission, since only the server uses it. The server is killed, and resumes."""
    server, client = write_own(tmp_path / "server"), write_own(tmp_path / "client")
    settings = changed(
        FEDAVG,
        algorithm={"name": f"{server}:FedAvgM", "beta": 0.5, "local_steps": 2},
        model={"name": f"{server}:Net", "width": 6},
        codec={"up": [f"{server}:Sign(2.0)"]},
        schedule={"learning_rate": {"name": f"{server}:Halved", "after": 2}},
    )
    with Deployment(fedge, tmp_path, settings) as deployment:
        deployment.start_server(die_at=("round committing -> committed", 2))
        refused = deployment.start_client(0).wait()
        assert refused.code == 2
        assert "model.name: the server asks for mine.py:Net (SHA-256 " in refused.err
        assert "algorithm.name: the server asks for mine.py:FedAvgM (SHA-256 " in refused.err
        for number in range(deployment.num_clients):
            deployment.start_client(number, "--allow", client)
        deployment.server.wait()
        deployment.start_server()
        deployment.finish()
        deployment.assert_equals_simulation()
