"""The benchmark of algorithms."""

import pytest
import torch
from benchmarks.algorithms import ALGORITHMS
from benchmarks.peers import fedge as peer
from benchmarks.peers.fedge import configure, prepare, set_up
from benchmarks.workloads import WORKLOADS

from federation import record_rounds
from fedge.core.schema import tag


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_can_be_built_for_the_workload(name: str) -> None:
    settings = ALGORITHMS[name]
    config = configure(WORKLOADS["W1"], "block", 1, settings)
    assert tag(type(config.algorithm)) == settings.get("algorithm", {}).get("name", "fedavg")
    algorithm = set_up(WORKLOADS["W1"], config).algorithm
    assert (algorithm.personal is not None) == ("personal" in settings)


@pytest.mark.parametrize("engine", ["loop", "block"])
def test_rounds_of_a_workload_run(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = record_rounds(peer, monkeypatch)
    workload = WORKLOADS["W4"]._replace(cohort=3, registered=10)
    prepare(workload, engine, 1)(2)
    assert [outcome.replies[0].costs.steps.tolist() for outcome in outcomes] == [[workload.steps] * 3] * 2
    assert not torch.equal(outcomes[0].state["x"], outcomes[1].state["x"])
