"""What a configuration stands for: clients with data, a model, an algorithm."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from fedge.algorithms import compose
from fedge.client.network import Network
from fedge.config import Config
from fedge.core.algorithm import Algorithm, Info, Kept
from fedge.core.errors import ConfigError
from fedge.core.world import World
from fedge.data.clients import Clients
from fedge.data.partition import Spatial
from fedge.edge.cells import CellClock
from fedge.edge.hierarchy import Hierarchy
from fedge.edge.world import SimulatedWorld
from fedge.engines.job import Job
from fedge.experiment.engine_choice import check_device
from fedge.models.flops import count_flops
from fedge.schedules import Amounts, Moment


class Setup(NamedTuple):
    """What a configuration and a seed stand for."""

    clients: Clients
    network: Network
    algorithm: Algorithm
    flops_per_sample: int

    @staticmethod
    def of(config: Config, seed: int) -> Setup:
        clients = config.data.build(seed)
        config.selection.number(len(clients.sizes))
        config.edge.check(len(clients.sizes))
        _check_cells(config, len(clients.sizes))
        config.schedule.check(amounts_of(config))
        if clients.task == "values" and config.target and config.target.metric != "loss":
            raise ConfigError(f"target.metric: a regression has no {config.target.metric}; its only metric is loss")
        network = Network(
            lambda: config.model.build(clients.shape, clients.num_outputs),
            seed,
            clients.task,
            getattr(torch, config.engine.dtype),
            check_device(config.engine),
        )
        algorithm = algorithm_of(config, network)
        return Setup(clients, network, algorithm, count_flops(network.module, clients.shape))

    def job(self, config: Config, kept: Kept) -> Job:
        return Job(
            self.algorithm,
            self.network,
            self.clients,
            kept,
            config.algorithm.batch_size,
            self.flops_per_sample,
            config.evaluate.cosine_distance,
        )

    def hierarchy(self, config: Config) -> Hierarchy:
        """The servers at the start."""
        state = self.algorithm.init(self.network.variables)
        return Hierarchy(self.algorithm.slots, state, config.edge.cell_grid.num_cells)

    def world(self, config: Config, seed: int) -> World:
        """Return the simulated world at the start of a run."""
        variables, amounts, sizes = self.network.variables, amounts_of(config), self.clients.sizes

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
            seed,
            amount,
            sum(value.nbytes for value in variables.values()),
        )


def algorithm_of(config: Config, network: Network) -> Algorithm:
    """All that the configuration says about the algorithm, for this model."""
    algorithm = compose(
        config.algorithm,
        config.reduce,
        config.personal,
        config.codec,
        config.cluster,
        config.evaluate.fine_tune_steps,
    )(network.layout)
    if any(work.penalty for work in algorithm.works.values()):
        network.last_layer  # noqa: B018 - a linear model has no features: an error now, not in the first round
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
    """What the server says of a round, with the simulated seconds so far and the state of the schedules."""
    num_asked = max(1, num_asked)  # schedules divide by it, also in a round in which nobody can be asked
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
    """What the algorithm was given, before any schedule."""
    num_steps, num_epochs = config.algorithm.amount
    work = num_steps or num_epochs or 1
    return Amounts(work, config.algorithm.learning_rate, config.algorithm.server_rate, epochs=num_steps is None)


def _check_cells(config: Config, num_clients: int) -> None:
    """Data that lies in cells lies in those of the edge."""
    partition = getattr(config.data, "partition", None)
    if not (isinstance(partition, Spatial) and isinstance(config.edge, CellClock)):
        return
    data, edge = partition.cell_grid, config.edge.cell_grid
    if data != edge:
        raise ConfigError(
            f"data.partition: its grid of {data.rows} x {data.cols} cells is not that of edge, {edge.rows} x "
            f"{edge.cols}; give both the same cells or grid"
        )
    if not np.array_equal(partition.occupancy(num_clients), config.edge.occupancy(num_clients)):
        raise ConfigError("data.partition.clients_per_cell: expected the same as edge.clients_per_cell; give both")
