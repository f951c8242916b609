"""What the benchmark of algorithms runs."""

import pytest
from benchmarks.algorithms import ALGORITHMS
from benchmarks.peers.fedge import configure, prepare
from benchmarks.workloads import WORKLOADS

from fedge.core.schema import tag
from fedge.setup import Setup


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_can_be_built_for_the_workload(name: str) -> None:
    settings = ALGORITHMS[name]
    config = configure(WORKLOADS["W1"], "block", 1, settings)
    assert tag(type(config.algorithm)) == settings.get("algorithm", {}).get("name", "fedavg")
    algorithm = Setup.of(config, 1).algorithm
    assert (algorithm.personal is not None) == ("personal" in settings)


@pytest.mark.parametrize("engine", ["loop", "block"])
def test_rounds_of_a_workload_run(engine: str) -> None:
    prepare(WORKLOADS["W4"]._replace(cohort=3, registered=10), engine, 1)(2)
