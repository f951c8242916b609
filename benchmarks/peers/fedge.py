"""Fedge as a candidate, set up from a configuration."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from itertools import count, islice
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from benchmarks.candidate import Rounds, UnavailableError, serve
from benchmarks.workloads import RATE, WORKLOADS, Workload
from fedge import config as configuration
from fedge.core.drive import Engine, drive
from fedge.core.registered import RegisteredClients, Task
from fedge.data.clients import Samples
from fedge.engines.both_sides import BothSides
from fedge.engines.memory import keep_freed_memory
from fedge.experiment.engine_choice import choose
from fedge.experiment.setup import Setup, info_of
from fedge.runs.kept import KeptStore


def make_engine(config: configuration.Config, sides: BothSides, cohort: int) -> Engine:
    """Return the configured engine; raise instead of falling back to `loop`, whose speed would be misattributed."""
    notices: list[str] = []
    chosen = choose(config.engine, sides, cohort, rows=None, notice=notices.append)
    if chosen.facts["engine"] == "loop" != config.engine.name:
        raise UnavailableError(notices[-1])
    return chosen.engine


class HeldClients:
    """Clients whose samples are loaded before the measurement."""

    def __init__(self, workload: Workload) -> None:
        self.shape, self.num_outputs = workload.shape, workload.num_classes
        self.task: Task = "classes"
        self.sizes = np.broadcast_to(np.int64(workload.num_samples), workload.registered)
        self.noisy = np.empty(0, int)
        self._workload = workload
        workload.samples(0)

    def num_samples(self, client: int, round: int) -> int:
        return self._workload.num_samples

    def train(self, client: int, round: int) -> Samples:
        x, y = self._workload.samples(client)
        return Samples(torch.from_numpy(x), torch.from_numpy(y))

    def test(self, client: int, round: int) -> Samples:
        return self.train(client, round)

    def pooled_test(self) -> Samples:
        return self.train(0, 1)


def configure(workload: Workload, engine: str, workers: int, settings: Mapping[str, Any]) -> configuration.Config:
    """Return the workload as an experiment, with further settings."""
    raw: dict[str, Any] = {
        "data": {"name": "synthetic", "clients": workload.registered},
        "model": workload.model,
        "algorithm": {
            "name": "fedavg",
            "learning_rate": RATE,
            "batch_size": workload.batch,
            "local_steps": workload.steps,
            **settings.get("algorithm", {}),
        },
        "selection": {"count": workload.cohort},
        "engine": {"name": engine, "workers": workers},
        **{name: table for name, table in settings.items() if name != "algorithm"},
    }
    return configuration.parse(raw)


def set_up(workload: Workload, config: configuration.Config, seed: int = 1) -> Setup:
    """Return the set-up of the configuration with the workload's data."""
    clients = HeldClients(workload)
    return replace(Setup.without_data(config, seed, RegisteredClients.of(clients)), data=clients)


def prepare(
    workload: Workload, engine_name: str, workers: int, settings: Mapping[str, Any] = MappingProxyType({})
) -> Rounds:
    config, seed = configure(workload, engine_name, workers, settings), 1
    setup = set_up(workload, config, seed)
    kept = KeptStore(setup.algorithm.keep(setup.network.variables), None)
    sides = BothSides(setup.server_side(), setup.client_side(kept), setup.test)
    engine = make_engine(config, sides, workload.cohort)
    state, numbers, world = setup.algorithm.init(setup.network.variables), count(1), setup.world()

    def rounds(num_rounds: int) -> None:
        nonlocal state
        for number in islice(numbers, num_rounds):
            (asked,) = world.gather(number)
            info = info_of(config, seed, workload.registered, len(asked.asked), number, 0.0, config.schedule.init())
            (outcome,) = drive(engine, setup.algorithm, [state], [info._replace(cohort=asked.present)])
            state = outcome.state

    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--engine", choices=("auto", "loop", "block", "pool"), default="auto")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    serve(lambda: prepare(WORKLOADS[options.workload], options.engine, options.workers), ["fedge", "torch", "numpy"])


if __name__ == "__main__":
    main()
