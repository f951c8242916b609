"""Growth of time and memory with registered clients, model size and workers, and overhead of a round without training.

`python -m benchmarks.growth` measures everything; `python -m benchmarks.growth clients 1000` runs one candidate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from itertools import count, islice

import torch
from torch import nn

from benchmarks.candidate import Rounds, serve, take_turns
from benchmarks.peers.fedge import HeldClients
from benchmarks.workloads import WORKLOADS
from fedge import config as configuration
from fedge.algorithms.fedavg import FedAvg
from fedge.client.client_side import ClientSide
from fedge.client.network import Network
from fedge.config import EngineOptions
from fedge.core.algorithm import Algorithm, Build, Context, Info, Work
from fedge.core.drive import drive
from fedge.core.layout import Layout, Tree
from fedge.core.registered import RegisteredClients
from fedge.core.server_side import ServerSide
from fedge.data.clients import Clients
from fedge.edge.clock import FixedClock
from fedge.edge.selection import Uniform
from fedge.edge.world import SimulatedWorld
from fedge.engines.both_sides import BothSides
from fedge.engines.memory import keep_freed_memory
from fedge.experiment.engine_choice import choose
from fedge.models.flops import count_flops
from fedge.runs.kept import KeptStore

VALUES = {
    "clients": (100, 1_000, 10_000, 100_000, 1_000_000),
    "params": (10**4, 10**5, 10**6, 10**7, 10**8),
    "workers": (1, 2, 3, 4),
    "overhead": (1, 2),
}
"""The quantities that grow. The overhead is measured in one process and with two workers."""
_PATIENCE_S = 240.0
_FEDAVG = FedAvg().build


def run(turns: int = 7) -> dict[str, object]:
    """Return by kind and value the seconds per round and peak memory in MB; for overhead, microseconds per client."""
    found: dict[str, object] = {}
    for kind, values in VALUES.items():
        commands = {str(value): [sys.executable, "-m", "benchmarks.growth", kind, str(value)] for value in values}
        measured, failed = take_turns(commands, turns, _PATIENCE_S)
        found[kind] = {
            name: {"seconds": statistics.median(outcome.seconds), "peak_mb": outcome.peak_mb}
            | ({"us_a_client": 1e6 * statistics.median(outcome.seconds) / 100} if kind == "overhead" else {})
            for name, outcome in measured.items()
        } | {name: {"unavailable": why} for name, why in failed.items()}
        print(f"{kind}: {json.dumps(found[kind])}", file=sys.stderr, flush=True)
    return found


def prepare(kind: str, value: int) -> Rounds:
    """Return the rounds of one candidate."""
    if kind == "clients":
        clients = _synthetic(value, features=20, samples=20)
        return _rounds(
            clients, lambda: nn.Linear(20, 5), cohort=100, steps=5, batch=20, engine=EngineOptions(name="block")
        )
    if kind == "params":
        width = max(1, value // 110)  # 100 inputs and 10 outputs per hidden unit
        clients = _synthetic(100, features=100, samples=20)
        model = lambda: nn.Sequential(nn.Linear(100, width), nn.ReLU(), nn.Linear(width, 10))  # noqa: E731
        return _rounds(clients, model, cohort=4, steps=2, batch=20, engine=EngineOptions(name="pool", workers=2))
    w1 = WORKLOADS["W1"]
    model = lambda: nn.Sequential(  # noqa: E731
        nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
    )
    build = _idle if kind == "overhead" else FedAvg().build
    engine = EngineOptions(name="block" if value == 1 else "pool", workers=value)
    return _rounds(HeldClients(w1), model, w1.cohort, w1.steps, w1.batch, engine, build)


def _rounds(
    clients: Clients,
    make: Callable[[], nn.Module],
    cohort: int,
    steps: int,
    batch: int,
    engine: EngineOptions,
    build: Build = _FEDAVG,
) -> Rounds:
    network = Network(make, 1, "classes")
    algorithm = build(network.layout)
    kept = KeptStore(algorithm.keep(network.variables), None)
    flops, registered = count_flops(network.module, clients.shape), RegisteredClients.of(clients)
    server = ServerSide(algorithm, network.layout, network.variables, registered, batch, flops, network.has_norm)
    sides = BothSides(server, ClientSide(algorithm, network, clients, kept, batch))
    chosen = choose(engine, sides, cohort, None, print)
    state, numbers, num_clients = algorithm.init(network.variables), count(1), len(clients.sizes)
    num_params = network.layout.num_params
    world = SimulatedWorld(
        FixedClock(), Uniform(count=cohort), num_clients, num_params, 1, lambda ids: (ids, ids), 4 * num_params
    )

    def rounds(num_rounds: int) -> None:
        nonlocal state
        for number in islice(numbers, num_rounds):
            (asked,) = world.gather(number)
            info = Info(number, 0.01, steps, None, num_clients, 1, asked.present)
            (outcome,) = drive(chosen.engine, algorithm, [state], [info])
            world.spend(number, [asked.cell], [outcome.replies], 0)
            state = outcome.state

    return rounds


def _synthetic(num_clients: int, features: int, samples: int) -> Clients:
    options = {"name": "synthetic", "clients": num_clients, "features": features, "classes": 5, "samples": samples}
    raw = {"data": options, "model": "logistic", "algorithm": {"name": "fedavg"}}
    return configuration.parse(raw).data.build(1)


def _idle(layout: Layout) -> Algorithm:
    """Return FedAvg whose clients return their download: the full work of an engine, without training."""

    def start(down: Tree, kept: Tree, ctx: Context) -> Tree:
        return {"y": down["x"], "stats": down["stats"]}

    def final(down: Tree, local: Tree, kept: Tree, ctx: Context) -> tuple[Tree, Tree]:
        return {name: local[name].clone() for name in ("y", "stats")}, kept

    return FedAvg().build(layout)._replace(works={"train": Work(start, final)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=VALUES, nargs="?")
    parser.add_argument("value", type=int, nargs="?")
    options = parser.parse_args()
    if options.kind is None:
        print(json.dumps(run(), indent=2))
        return
    torch.set_num_threads(1)
    keep_freed_memory()
    serve(lambda: prepare(options.kind, options.value), ["torch"])


if __name__ == "__main__":
    main()
