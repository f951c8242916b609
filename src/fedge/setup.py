"""What a configuration stands for: clients with data, a model, an algorithm."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from fedge.algorithms import compose
from fedge.config import Config
from fedge.core.algorithm import Algorithm, Info, Kept
from fedge.core.errors import ConfigError
from fedge.data.clients import Clients
from fedge.engines.job import Job
from fedge.engines.network import Network
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
        config.schedule.check(amounts_of(config))
        if clients.task == "values" and config.target and config.target.metric != "loss":
            raise ConfigError(f"target.metric: a regression has no {config.target.metric}; its only metric is loss")
        network = Network(
            lambda: config.model.build(clients.shape, clients.num_outputs),
            seed,
            clients.task,
            getattr(torch, config.engine.dtype),
            config.engine.checked_device,
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
    config: Config, seed: int, num_clients: int, round: int, sim_seconds: float, schedule: dict[str, Any]
) -> Info:
    """What the server says of a round, with the simulated seconds so far and the state of the schedules."""
    cohort = config.selection.select(num_clients, seed, round)
    moment = Moment(round, len(cohort) / num_clients, len(cohort), config.algorithm.batch_size, sim_seconds)
    amounts = config.schedule.amounts(amounts_of(config), moment, schedule)
    return Info(
        round=round,
        rate=amounts.rate,
        num_steps=amounts.num_steps,
        num_epochs=amounts.num_epochs,
        num_clients=num_clients,
        seed=seed,
        cohort=cohort,
        server_rate=1.0 if amounts.server_rate is None else amounts.server_rate,
    )


def amounts_of(config: Config) -> Amounts:
    """What the algorithm was given, before any schedule."""
    num_steps, num_epochs = config.algorithm.amount
    work = num_steps or num_epochs or 1
    return Amounts(work, config.algorithm.learning_rate, config.algorithm.server_rate, epochs=num_steps is None)
