"""Forecast the costs of an experiment, counted by the same rules as the engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fedge.core import message
from fedge.core.algorithm import Exchange, Info, Reply
from fedge.core.answer import Answer, Request
from fedge.core.effort import Effort, most_effort
from fedge.core.reduction import costs_of
from fedge.core.world import World
from fedge.costs.round_rehearsal import RehearsedExchange, count_vectors, rehearse_round
from fedge.edge.ledger import Ledger
from fedge.experiment.setup import Setup, info_of


class Quote(NamedTuple):
    """The mean costs of the first round per client of its cohort."""

    vectors_down: float  # in model-sized vectors, before any codec
    vectors_up: float
    memory: float  # working memory during training, in model-sized vectors
    kept: float  # private state between rounds, in model-sized vectors
    bytes_down: float
    bytes_up: float
    compression: float  # compression ratio of the upload
    local_steps: float
    flops: float
    sim_seconds: float  # until its answer has arrived, without waiting for others


class Forecast:
    """The costs of each round if the model of every client changes enough to be uploaded, or of none (`still`).

    The two differ for algorithms in which clients upload only after a large change. Other costs that depend on training
    are counted at their maximum, and listed in `notes`.
    """

    def __init__(self, setup: Setup, still: bool = False) -> None:
        self._config, self._seed = setup.config, setup.seed
        self._server = setup.server_side()
        self._world = setup.world
        self._state_bytes = setup.hierarchy().num_bytes
        self.parts = rehearse_round(self._server, still)
        self._num_samples = setup.clients.num_samples
        self._kept = count_vectors(setup.algorithm.keep(setup.network.variables), setup.network.layout.num_params)

    def quote(self) -> Quote:
        """Return the mean costs of the first round for one client."""
        world = self._world()
        by_cell = self._replies(world, 1)
        replies = [reply for exchanges in by_cell.values() for reply in exchanges]
        num_clients = max(1, sum(len(exchanges[0].ids) for exchanges in by_cell.values()))
        times = world.spend(1, list(by_cell), list(by_cell.values()), self._state_bytes)
        record = Ledger().charge(replies, times)
        plain = sum(message.size(message.NoMeta(), part.plain_up) for part in self.parts)
        return Quote(
            vectors_down=sum(part.vectors_down for part in self.parts),
            vectors_up=sum(part.vectors_up for part in self.parts),
            memory=max(part.memory for part in self.parts),
            kept=self._kept,
            bytes_down=record["bytes_down"] / num_clients,
            bytes_up=record["bytes_up"] / num_clients,
            compression=plain / sum(message.size(message.NoMeta(), part.up) for part in self.parts),
            local_steps=record["local_steps"] / num_clients,
            flops=record["flops"] / num_clients,
            sim_seconds=times.down + times.compute + times.up,
        )

    def rounds(self) -> Iterator[dict[str, Any]]:
        """Yield the costs of each round as fields of its record, until the budget is spent."""
        ledger, world = Ledger(), self._world()
        for round in range(1, self._config.rounds + 1):
            by_cell = self._replies(world, round)
            spent = world.spend(round, list(by_cell), list(by_cell.values()), self._state_bytes)
            world.move(round)
            replies = [reply for exchanges in by_cell.values() for reply in exchanges]
            yield {"round": round, **ledger.charge(replies, spent)}
            if self._config.budget.spent(ledger.totals):
                return

    def notes(self) -> Iterator[str]:
        """Yield the assumptions that training may contradict."""
        config = self._config
        rule = config.schedule.local_steps
        if rule is not None and rule.init():
            yield "schedule.local_steps depends on training progress; its initial value, the maximum, is counted"
        if len(self.parts) > 1:
            names = ", ".join(part.work for part in self.parts)
            yield f"a round has at most the exchanges {names}: clients that do not communicate only train"
        if config.cluster:
            yield (
                f"cluster: all available clients take part in round {config.cluster.round}; after that, clusters are "
                "asked one after another, and clients that were unavailable train once more when they are first "
                "asked, which takes longer than counted here"
            )
        if config.edge.deadline_s is not None:
            yield "edge.deadline_s: all clients are counted as in time"
        if config.target and config.target.stop:
            yield "the run ends when target.value is reached, perhaps before its last round"
        if any(part.up.keys() != part.plain_up.keys() for part in self.parts):
            yield (
                "compressed uploads are measured on random changes without zeros; "
                "real ones differ by about 2%, and are smaller if many weights do not change"
            )

    def _replies(self, world: World, round: int) -> dict[int, list[Reply]]:
        """Return replies that contain only costs, by cell."""
        config, num_clients = self._config, len(self._server.clients.sizes)
        everyone = config.cluster is not None and round == config.cluster.round
        cohorts = {cohort.cell: cohort.present for cohort in world.gather(round, everyone) if cohort.present}
        num_asked = sum(len(cohort) for cohort in cohorts.values())
        info = info_of(config, self._seed, num_clients, num_asked, round, world.seconds, config.schedule.init())
        return {
            cell: [self._reply(part, info._replace(cohort=cohort)) for part in self.parts]
            for cell, cohort in cohorts.items()
        }

    def _reply(self, part: RehearsedExchange, info: Info) -> Reply:
        server, exchange = self._server, Exchange(part.work, {}, info.cohort)
        ids = server.present(exchange)
        sizes = [self._num_samples(client, info.round) for client in ids]
        efforts = [self._effort(part, size, info) for size in sizes]
        answers = [Answer(*given, {}) for given in zip(ids, sizes, efforts, strict=True)]
        down = message.size(Request(exchange, info, part.down).meta(), part.down) if part.charged else 0
        up = message.sizes([answer.meta() for answer in answers], part.up) if part.charged else [0] * len(ids)
        return Reply(
            value={},
            ids=tuple(ids),
            samples=np.array(sizes, np.int64),
            missing=(),
            costs=costs_of(server, server.algorithm.works[part.work], efforts, [down] * len(ids), up),
            losses=np.full(len(ids), np.nan),
            communicated=part.vectors_up > 0,
        )

    def _effort(self, part: RehearsedExchange, size: int, info: Info) -> Effort:
        """Return the effort of a client with `size` samples."""
        server = self._server
        work = server.algorithm.works[part.work]
        return most_effort(work, part.gradients, info, size, server.batch_size, server.drop_single)
