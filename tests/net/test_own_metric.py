"""Metrics computed at clients: built-in ones, and one in a file that each client must allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.command import Fedge
from e2e.experiments import changed, records
from fedge.runs import Run
from net.deployment import Deployment
from net.scenes import FEDAVG

METRIC = """
from fedge.metrics import Metric

class Error(Metric):
    better, low, high = "lower", 0.0, 1.0
    per_sample = (0.0, 1.0)

    def count(self, outputs, targets):
        wrong = (outputs.argmax(-1) != targets).double()
        return {"wrong": wrong.sum().reshape(1), "all": wrong.new_tensor([len(targets)])}

    def value(self, sums):
        return float(sums["wrong"] / sums["all"])
"""


@pytest.mark.full
def test_clients_count_metrics(fedge: Fedge, tmp_path: Path) -> None:
    server, client = tmp_path / "my_metric.py", tmp_path / "copies" / "their_metric.py"
    client.parent.mkdir()
    server.write_text(METRIC)
    client.write_text(METRIC)
    chosen = ["f1", "auc", "top5", "perplexity", f"{server}:Error"]
    target = {"metric": "f1", "value": 0.35}
    settings = changed(FEDAVG, evaluate={"at": "clients", "metrics": chosen}, target=target)
    with Deployment(fedge, tmp_path, settings) as deployment:
        deployment.start_server()
        refused = deployment.start_client(0).wait()
        assert refused.code == 2
        assert "the server asks for my_metric.py:Error (SHA-256 " in refused.err
        for number in range(deployment.num_clients):
            deployment.start_client(number, "--allow", client)
        deployment.finish()
        deployment.assert_equals_simulation()
        last = records(deployment.run)[-1]
        assert last["error"] == pytest.approx(1 - last["accuracy"])
        assert {"f1", "auc", "top5", "perplexity"} <= last.keys()
        reached = [record["round"] for record in records(deployment.run) if record["f1"] >= 0.35]
        summary = Run(deployment.run).summary or {}
        assert reached[0] > 1
        assert (summary["rounds_to_target"], summary["f1"]) == (reached[0], last["f1"])
