"""Rounds per second of each engine beside a plain PyTorch loop on the same work (workload W1).

MNIST-2NN (784-200-200-10), 300 samples a client, batch 20, 15 steps; 20 clients a round instead of 100, which changes
the time but not the ratios.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.measure import interleaved, ratios
from fedge import config as configuration
from fedge.core.algorithm import Info, drive
from fedge.data.clients import Clients, Samples
from fedge.engines.block import Block
from fedge.engines.kernels.assemble import Kernels, assemble
from fedge.engines.loop import Loop
from fedge.engines.memory import keep_freed_memory
from fedge.engines.wire import Wire
from fedge.runs.kept import KeptStore
from fedge.setup import Setup

_CLIENTS, _STEPS, _BATCH = 20, 15, 20
_ALGORITHMS = {
    "fedavg": {"name": "fedavg"},
    "scaffold": {"name": "scaffold"},
    "fedavg_adam": {"name": "fedavg_adam"},
}


def run() -> dict[str, object]:
    """Speed relative to the plain loop, by engine and by algorithm."""
    torch.set_num_threads(1)
    keep_freed_memory()
    candidates = {"plain": _plain()}
    for algorithm in _ALGORITHMS:
        engines = ("loop", "wire", "block") if algorithm == "fedavg" else ("block",)
        candidates |= {f"{algorithm} {engine}": _round(algorithm, engine) for engine in engines}
    seconds = interleaved(candidates)
    return {"clients": _CLIENTS, "seconds": seconds, "times_plain": ratios(seconds, "plain")}


def _setup(algorithm: str) -> tuple[configuration.Config, Setup]:
    config = configuration.parse(
        {
            "data": {"name": "synthetic", "clients": _CLIENTS, "features": 784, "classes": 10, "samples": 300},
            "model": "mnist_2nn",
            "algorithm": {**_ALGORITHMS[algorithm], "batch_size": _BATCH, "local_steps": _STEPS},
        }
    )
    return config, Setup.of(config, 1)


def _round(algorithm: str, engine: str) -> Callable[[], object]:
    config, setup = _setup(algorithm)
    job = setup.job(config, KeptStore(setup.algorithm.keep(setup.network.variables), None))
    clients = {client: setup.clients.train(client, 1) for client in range(_CLIENTS)}
    job = job._replace(clients=_Held(setup.clients, clients))
    if engine == "block":
        kernels = assemble(job.network)
        assert isinstance(kernels, Kernels), kernels
        runner = Block(job, kernels)
    else:
        runner = Loop(job) if engine == "loop" else Wire(job, lambda: _setup(algorithm)[1].job(config, job.kept))
    state = setup.algorithm.init(setup.network.variables)
    info = Info(1, 0.01, _STEPS, None, _CLIENTS, seed=1, cohort=tuple(range(_CLIENTS)))
    return lambda: drive(runner, setup.algorithm, [state], [info])


class _Held:
    """Clients whose samples are in memory: making synthetic ones is not what is measured."""

    def __init__(self, clients: Clients, samples: dict[int, Samples]) -> None:
        self.__dict__.update(vars(clients))
        self._samples = samples

    def train(self, client: int) -> Samples:
        return self._samples[client]


def _plain() -> Callable[[], object]:
    """What one would write without a framework: a module, SGD, one client after another."""
    _, setup = _setup("fedavg")
    samples = [setup.clients.train(client, 1) for client in range(_CLIENTS)]
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
    )
    start = {name: value.clone() for name, value in model.state_dict().items()}

    def train() -> None:
        total = {name: torch.zeros_like(value) for name, value in start.items()}
        for x, y in samples:
            model.load_state_dict(start)
            optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
            order = torch.randperm(len(y))
            for step in range(_STEPS):
                batch = order[step * _BATCH : (step + 1) * _BATCH]
                optimiser.zero_grad()
                cross_entropy(model(x[batch]), y[batch]).backward()
                optimiser.step()
            for name, value in model.state_dict().items():
                total[name] += value / _CLIENTS

    return train


def million() -> None:
    """A million registered clients, 100 a round, 20 rounds of logistic regression; run in a process of its own."""
    from fedge.experiment import run as train

    source = {
        "data": {"name": "synthetic", "clients": 1_000_000, "features": 20, "classes": 5, "samples": 20},
        "model": "logistic",
        "algorithm": {"name": "fedavg", "local_steps": 5},
        "selection": {"count": 100},
        "rounds": 20,
        "evaluate": {"every": 20},
    }
    with tempfile.TemporaryDirectory() as folder:
        train(source, runs=Path(folder))
