"""A model that is the experimenter's own function, which a client uses only if its owner allows the file."""

from __future__ import annotations

from pathlib import Path

from e2e.command import Fedge
from e2e.experiments import changed
from net.deployment import Deployment
from net.scenes import FEDAVG

MODEL = """
from torch import nn

def build(shape, num_outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, num_outputs))
"""


def test_a_file_that_clients_allow(fedge: Fedge, tmp_path: Path) -> None:
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
        assert "which you have not allowed" in refused.err
        for number in range(deployment.num_clients):
            deployment.start_client(number, "--allow", client)
        deployment.finish()
        deployment.assert_equals_simulation()
