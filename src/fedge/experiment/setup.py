"""Build the parts of an experiment from its configuration: clients with data, a model, an algorithm."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fedge.algorithms import compose
from fedge.client.client_side import ClientSide
from fedge.client.network import Network
from fedge.config import Config
from fedge.core.algorithm import Algorithm, Info, Kept
from fedge.core.errors import ConfigError
from fedge.core.metric_set import NO_METRICS, MetricSet
from fedge.core.parts import Sources, noting_parts
from fedge.core.registered import RegisteredClients
from fedge.core.server_side import Limits, OnBad, ServerSide
from fedge.core.world import World
from fedge.data.clients import Clients, Samples
from fedge.data.partition import Spatial
from fedge.edge.cells import CellClock
from fedge.edge.hierarchy import Hierarchy
from fedge.edge.world import SimulatedWorld
from fedge.experiment.engine_choice import check_device
from fedge.metrics import load_metrics
from fedge.models.flops import count_flops
from fedge.schedules import Amounts, Moment


@dataclass(frozen=True)
class Setup:
    """A configuration and a seed with everything built from them, once per run. Caches live as long as the run."""

    config: Config
    seed: int
    registered: RegisteredClients
    network: Network
    algorithm: Algorithm
    flops_per_sample: int
    data: Clients | None = None  # None on a server, whose clients have the data
    sources: Sources = field(default_factory=dict)  # of user files and packages
    metrics: MetricSet = NO_METRICS

    @staticmethod
    def of(config: Config, seed: int) -> Setup:
        """Build data, model and algorithm. Raises FedgeError if they do not fit together."""
        with noting_parts(config) as sources:
            data = config.data.build(seed)
            config.selection.check(len(data.sizes))
            setup = Setup.without_data(config, seed, RegisteredClients.of(data))
            probe = data.train(int(np.argmax(data.sizes)), 1)
            setup.network.try_out(setup.network.cast(Samples(*(side[:2] for side in probe))))
        return replace(setup, data=data, sources=sources)

    @staticmethod
    def without_data(config: Config, seed: int, registered: RegisteredClients) -> Setup:
        """Build model and algorithm for registered clients. Raises FedgeError if they do not fit together."""
        num_clients = len(registered.sizes)
        config.edge.check(num_clients)
        _check_cells(config, num_clients)
        config.schedule.check(amounts_of(config))
        target = config.target if config.target and config.target.value is not None else None
        if registered.task == "values" and target and "accuracy" in target.metric:
            raise ConfigError(
                f"target.metric: a regression has no {target.metric}; its metrics are loss and validation_loss"
            )
        if target and target.metric == "user_accuracy_clean" and not len(registered.noisy):
            raise ConfigError(
                "target.metric: user_accuracy_clean needs noisy clients, but there are none; set data.noise"
            )
        network = _network(config, seed, registered)
        metrics = _metrics(config, registered, network)
        flops = count_flops(network.module, registered.shape)
        return Setup(config, seed, registered, network, algorithm_of(config, network), flops, metrics=metrics)

    @property
    def clients(self) -> Clients:
        """The clients' data."""
        assert self.data is not None, "a server has no data of its clients"
        return self.data

    def variant(self, config: Config) -> Setup:
        """Return the same data and model with another algorithm."""
        return replace(self, config=config, algorithm=algorithm_of(config, self.network))

    @cached_property
    def test(self) -> Samples | None:
        """The server's test set, pooled from all clients; None if it is empty."""
        found = self.clients.pooled_test()
        return found if len(found) else None

    @property
    def clients_test(self) -> bool:
        """Whether any client has a test sample."""
        return any(len(self.clients.test(client, 1)) for client in range(len(self.registered.sizes)))

    @cached_property
    def class_counts(self) -> np.ndarray:
        """The number of training samples of each client and class."""
        clients = self.clients
        labels = (clients.train(client, 1).y.numpy() for client in range(len(clients.sizes)))
        return np.stack([np.bincount(y, minlength=clients.num_outputs) for y in labels])

    def server_side(self, on_bad: OnBad = "stop") -> ServerSide:
        """Return the server's side; `on_bad` is the default of that setting."""
        config, network = self.config, self.network
        return ServerSide(
            self.algorithm,
            network.layout,
            network.variables,
            self.registered,
            config.algorithm.batch_size,
            self.flops_per_sample,
            network.has_norm,
            config.evaluate.cosine_distance,
            Limits(config.reduce.max_norm, config.reduce.on_bad or on_bad),
            self.metrics,
        )

    def client_side(self, kept: Kept) -> ClientSide:
        """Return the clients' side."""
        batch_size = self.config.algorithm.batch_size
        return ClientSide(self.algorithm, self.network, self.clients, kept, batch_size, self.metrics)

    def rebuilt(self) -> Setup:
        """Return the same data with model, algorithm and metrics rebuilt from the configuration."""
        network = _network(self.config, self.seed, self.registered)
        metrics = _metrics(self.config, self.registered, network)
        return replace(self, network=network, algorithm=algorithm_of(self.config, network), metrics=metrics)

    def hierarchy(self) -> Hierarchy:
        """Return the initial server states."""
        state = self.algorithm.init(self.network.variables)
        edge = self.config.edge
        return Hierarchy(self.algorithm.slots, state, edge.cell_grid.num_cells, edge.cells_equal)

    def world(self) -> World:
        """Return the simulated world in its initial state."""
        config, amounts, sizes = self.config, amounts_of(self.config), self.registered.sizes

        def amount(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            num_samples = sizes[ids]
            batch = np.minimum(config.algorithm.batch_size, num_samples)
            steps = amounts.work * (-(-num_samples // batch) if amounts.epochs else np.ones_like(num_samples))
            return steps, amounts.work * num_samples if amounts.epochs else steps * batch

        return SimulatedWorld(
            config.edge,
            config.selection,
            len(sizes),
            self.network.layout.num_params,
            self.seed,
            amount,
            sum(value.nbytes for value in self.network.variables.values()),
        )


def _network(config: Config, seed: int, clients: RegisteredClients) -> Network:
    return Network(
        lambda: config.model.build(clients.shape, clients.num_outputs),
        seed,
        clients.task,
        getattr(torch, config.engine.dtype),
        check_device(config.engine),
    )


def _metrics(config: Config, clients: RegisteredClients, network: Network) -> MetricSet:
    """Return the tested metrics of a run. Raises ConfigError if they do not fit the data, or the target them."""
    metrics = MetricSet(load_metrics(config.evaluate.metrics), clients.task, clients.num_outputs, network.dtype)
    target = config.target
    if target and target.value is not None and target.metric in (own := metrics.fields):
        declared = own[target.metric]
        if not declared.low <= target.value <= declared.high:
            raise ConfigError(
                f"target.value: expected a number from {declared.low:g} to {declared.high:g} for {target.metric}, got "
                f"{target.value:g}"
            )
    return metrics


def algorithm_of(config: Config, network: Network) -> Algorithm:
    """Return the configured algorithm with all its wrappers, for this model."""
    algorithm = compose(
        config.algorithm, config.reduce, config.personal, config.codec, config.cluster, config.evaluate.fine_tune_steps
    )(network.layout)
    if any(work.penalty for work in algorithm.works.values()):
        network.last_layer  # noqa: B018 - raises now, not in the first round, for a linear model, which has no features
    return algorithm


def info_of(
    config: Config,
    seed: int,
    num_clients: int,
    num_asked: int,
    round: int,
    sim_seconds: float,
    schedule: dict[str, Any],
) -> Info:
    """Return the parameters of a round, given the simulated seconds so far and the state of the schedules."""
    num_asked = max(1, num_asked)  # schedules divide by it, even if no client is available
    share = config.selection.share(num_clients, config.edge.cell_grid.num_cells if config.edge.divided else None)
    moment = Moment(round, share, num_asked, config.algorithm.batch_size, sim_seconds)
    amounts = config.schedule.amounts(amounts_of(config), moment, schedule)
    return Info(
        round=round,
        rate=amounts.rate,
        num_steps=amounts.num_steps,
        num_epochs=amounts.num_epochs,
        num_clients=num_clients,
        seed=seed,
        server_rate=1.0 if amounts.server_rate is None else amounts.server_rate,
    )


def amounts_of(config: Config) -> Amounts:
    """Return the configured amounts of work and learning rates, before any schedule."""
    num_steps, num_epochs = config.algorithm.amount
    work = num_steps or num_epochs or 1
    return Amounts(work, config.algorithm.learning_rate, config.algorithm.server_rate, epochs=num_steps is None)


def _check_cells(config: Config, num_clients: int) -> None:
    """Raise a ConfigError if spatially partitioned data has other cells than the edge."""
    partition = getattr(config.data, "partition", None)
    if not (isinstance(partition, Spatial) and isinstance(config.edge, CellClock)):
        return
    data, edge = partition.cell_grid, config.edge.cell_grid
    if data != edge:
        raise ConfigError(
            f"data.partition: its grid of {data.rows} x {data.cols} cells differs from that of edge, {edge.rows} x "
            f"{edge.cols}; give both the same cells or grid"
        )
    if not np.array_equal(partition.occupancy(num_clients), config.edge.occupancy(num_clients)):
        raise ConfigError("data.partition.clients_per_cell: expected the same as edge.clients_per_cell; give both")
