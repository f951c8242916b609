"""Tiny federations: handmade data, a model of a few weights, and every engine that runs in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from fedge.client.client_side import ClientSide
from fedge.client.network import Network
from fedge.core.algorithm import Build, Info
from fedge.core.drive import Engine, Outcome, drive
from fedge.core.layout import Tree
from fedge.core.metric_set import NO_METRICS, MetricSet
from fedge.core.registered import RegisteredClients, Task
from fedge.core.server_side import ServerSide
from fedge.data.clients import Samples
from fedge.engines.block import Block
from fedge.engines.both_sides import BothSides
from fedge.engines.kernels.assemble import Batched, assemble
from fedge.engines.loop import Loop
from fedge.engines.wire import Wire
from fedge.runs.kept import KeptStore

ENGINES = ("loop", "wire", "block")
"""One client after another; the same with encoded messages; clients as rows of a matrix."""


class Handmade:
    """Clients with given samples."""

    def __init__(self, samples: Sequence[Samples], num_outputs: int, task: Task = "classes") -> None:
        self._samples = list(samples)
        self.shape = tuple(samples[0].x.shape[1:])
        self.num_outputs, self.task = num_outputs, task
        self.sizes = np.array([len(part) for part in samples])
        self.noisy = np.empty(0, int)

    def num_samples(self, client: int, round: int) -> int:
        return len(self._samples[client])

    def train(self, client: int, round: int) -> Samples:
        return self._samples[client]

    test = train

    def validation(self, client: int, round: int) -> Samples:
        """Return an empty set: all samples are for training."""
        return Samples(*(side[:0] for side in self._samples[client]))

    def pooled_test(self) -> Samples:
        return Samples(*(torch.cat([part[i] for part in self._samples]) for i in (0, 1)))


def points(*targets: float) -> Handmade:
    """Return one client with one sample per target b: under `slope`, its loss is (w - b)^2/2, its gradient w - b."""
    one = torch.ones(1, 1)
    return Handmade([Samples(one, torch.tensor([[float(b)]])) for b in targets], 1, "values")


def mixed(sizes: Sequence[int] = (6, 9, 9, 1), classes: int = 3, features: int = 8) -> Handmade:
    """Return clients of different sizes with random samples; one of them has a single sample."""
    rng = np.random.default_rng(3)
    return Handmade(
        [
            Samples(
                torch.from_numpy(rng.standard_normal((n, features))).float(),
                torch.from_numpy(rng.integers(0, classes, n)),
            )
            for n in sizes
        ],
        classes,
    )


def slope() -> nn.Module:
    """Return a model with one weight w, initially 1, and output w * x."""
    layer = nn.Linear(1, 1, bias=False)
    nn.init.ones_(layer.weight)
    return nn.Sequential(layer)


def normed() -> nn.Module:
    """Return a small network with BatchNorm whose layers all have batched kernels.

    There is no bias before BatchNorm: its true gradient is 0, and Adam starting at v = 0 would amplify the rounding
    noise, which differs between engines, to full-size steps.
    """
    return nn.Sequential(nn.Flatten(), nn.Linear(8, 6, bias=False), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def dense() -> nn.Module:
    """Return a small network without BatchNorm."""
    return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))


def make_sides(
    build: Build,
    clients: Handmade,
    make: Callable[[], nn.Module] = normed,
    batch_size: int = 4,
    dtype: torch.dtype = torch.float64,
    metrics: MetricSet = NO_METRICS,
    **server: Any,
) -> BothSides:
    """Return server and client sides; keyword arguments set fields of the server side."""
    network = Network(make, 1, clients.task, dtype)
    algorithm = build(network.layout)
    kept = KeptStore(algorithm.keep(network.variables), None)
    registered = RegisteredClients.of(clients)
    return BothSides(
        ServerSide(
            algorithm,
            network.layout,
            network.variables,
            registered,
            batch_size,
            100,
            network.has_norm,
            metrics=metrics,
            **server,
        ),
        ClientSide(algorithm, network, clients, kept, batch_size, metrics),
        clients.pooled_test(),
    )


def make_engine(name: str, sides: BothSides, make_anew: Callable[[], BothSides], num_rows: int = 2) -> Engine:
    """Return an engine by name. With `wire`, clients get their own algorithm and model from `make_anew`."""
    if name == "loop":
        return Loop(sides)
    if name == "wire":
        anew = make_anew().clients._replace(kept=sides.clients.kept, data=sides.clients.data)
        return Wire(sides._replace(clients=anew))
    return Block(sides, batched_of(sides), num_rows)


def batched_of(sides: BothSides) -> Batched:
    """Return the batched model of the clients, which must exist."""
    batched = assemble(sides.clients.network, sides.clients.probe())
    assert not isinstance(batched, str), batched
    return batched


class Federation:
    """Runs an algorithm in an engine, round by round. Only the first `num_clients` clients are registered."""

    def __init__(
        self,
        build: Build,
        clients: Handmade,
        engine: str = "loop",
        rate: float = 0.1,
        server_rate: float = 1.0,
        num_clients: int | None = None,
        steps: int = 3,
        epochs: int | None = None,
        **options: Any,
    ) -> None:
        """`steps` is used unless `epochs` is given; further arguments are those of `make_sides`."""
        self.sides = make_sides(build, clients, **options)
        self.engine = make_engine(engine, self.sides, lambda: make_sides(build, clients, **options))
        self.state = self.clients.algorithm.init(self.clients.network.variables)
        num_clients = len(clients.sizes) if num_clients is None else num_clients
        self.info = Info(
            round=0,
            rate=rate,
            num_steps=None if epochs else steps,
            num_epochs=epochs,
            num_clients=num_clients,
            seed=7,
            cohort=tuple(range(num_clients)),
            server_rate=server_rate,
        )

    @property
    def clients(self) -> ClientSide:
        return self.sides.clients

    def round(self, cohort: Sequence[int] | None = None) -> Outcome:
        """Run one round with all clients, or with this cohort."""
        self.info = self.info._replace(round=self.info.round + 1)
        info = self.info if cohort is None else self.info._replace(cohort=tuple(cohort))
        (outcome,) = drive(self.engine, self.clients.algorithm, [self.state], [info])
        self.state = outcome.state
        return outcome

    def rounds(self, number: int) -> Federation:
        """Run several rounds with all clients."""
        for _ in range(number):
            self.round()
        return self

    def grow(self, num_clients: int) -> Federation:
        """Register more clients, which take part from the next round on."""
        self.state = self.clients.algorithm.grow(self.state, self.info.num_clients, num_clients)
        self.info = self.info._replace(num_clients=num_clients, cohort=tuple(range(num_clients)))
        return self

    def everything(self) -> Tree:
        """Return the server state and all kept state, by name."""
        found = dict(self.state)
        for client in range(len(self.clients.data.sizes)):
            found |= {f"{client}/{name}": value for name, value in self.clients.kept.read(client).items()}
        return found

    def weight(self) -> float:
        """The only weight of the global model, for federations made of `points` and `slope`."""
        return float(self.clients.algorithm.model(self.state, self.clients.network.variables)["x"])
