"""The rounds of one run. Of its clients, the server knows only what they registered."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from math import isnan
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedge.config import Config
from fedge.core.algorithm import Info, Reply
from fedge.core.drive import Engine, Outcome, drive
from fedge.core.errors import VoidError
from fedge.core.layout import Tree, nest, pick
from fedge.core.progress import Progress
from fedge.core.registered import RegisteredClients
from fedge.core.server_side import ServerSide
from fedge.core.world import Cohort, World
from fedge.edge.hierarchy import Hierarchy
from fedge.edge.ledger import Ledger
from fedge.experiment.checkpoint_check import check_checkpoint
from fedge.experiment.evaluation import Evaluation
from fedge.experiment.records import describe_round
from fedge.experiment.results import Results, seen_of
from fedge.experiment.setup import info_of
from fedge.experiment.trace import Tracer
from fedge.runs.directory import RunDirectory
from fedge.runs.files import STATE
from fedge.runs.pace import CommitPolicy
from fedge.runs.read import Run

Record = dict[str, Any]
"""The record of a round: see `fedge.core.fields`."""


class Surroundings(NamedTuple):
    """What a run needs besides its configuration; it differs between simulation and a real network."""

    server: ServerSide
    engine: Engine
    world: World
    hierarchy: Hierarchy
    commits: Callable[[int], CommitPolicy]  # given the round of the last checkpoint
    has_test: bool  # the engine can evaluate models on a test set of the server
    tracer: Tracer | None = None
    class_counts: Callable[[], np.ndarray] | None = None  # training samples of each client and class, if known
    begin: Callable[[int], RegisteredClients] | None = None  # waits until a round can start; returns its clients
    explain_silence: Callable[[], str] | None = None  # why no client answers, and what to do


class TrainingRun:
    """A run in progress: its state after some number of rounds."""

    def __init__(
        self, config: Config, seed: int, given: Surroundings, directory: RunDirectory, progress: Progress
    ) -> None:
        self._config, self._seed, self._given = config, seed, given
        self._directory, self._progress = directory, progress
        self._server, self._world, self._hierarchy = given.server, given.world, given.hierarchy
        self._algorithm, self._num_clients = given.server.algorithm, len(given.server.clients.sizes)
        self._ledger = Ledger()
        self._round = 0
        self._void_rounds = 0  # consecutive, up to the last round
        self._seconds = 0.0
        self._stopped = False  # by a callback
        self._results = Results(config.target, given.server.metrics.fields)
        self._schedule = config.schedule.init()
        self._evaluation = Evaluation(
            config.evaluate, given.server, given.engine, given.has_test, config.data.validation is not None
        )
        if (restored := directory.restore()) is not None:
            self._restore(*restored)

    @property
    def round(self) -> int:
        """The last completed round."""
        return self._round

    def model(self) -> Tree:
        """Return the variables of the global model."""
        return self._algorithm.model(self._hierarchy.merged(), self._server.variables)

    def run(self) -> None:
        """Train to the end."""
        for _ in self.steps():
            pass

    def steps(self) -> Generator[Record, bool | None, None]:
        """Train round by round: yield each record once it is written. Sending True makes that round the last.

        If the generator is closed early, it saves the last round and the run stays unfinished.
        """
        config, directory, progress = self._config, self._directory, self._progress
        progress.begin(str(directory.path), self._round + 1, config.rounds)
        commits = self._given.commits(self._round)
        started, saving = time.perf_counter(), 0.0
        while self._ended_by() is None:
            record = self._one_round()
            directory.append(record)
            progress.round(record)
            if self._void_rounds >= config.edge.max_void_rounds:
                self._save()
                what = f"in {self._void_rounds} consecutive rounds, the limit of edge.max_void_rounds"
                reason = self._explain(what, record.get("rejected", 0))
                raise VoidError(f"{reason}, or raise edge.max_void_rounds")
            now = time.perf_counter()
            if commits.due(self._round, now - started, saving):
                self._save()
                saving += time.perf_counter() - now
            try:
                self._stopped = bool((yield record))
            except GeneratorExit:
                self._save()
                self._write_model()
                raise
        self._save()
        records = Run(directory.path).rounds
        num_void = sum(bool(record.get("void")) for record in records)
        if num_void == self._round:  # nothing was trained: this must not look like a result
            rejected = records[-1].get("rejected", 0) if records else 0
            raise VoidError(self._explain(f"in any of the {num_void} rounds", rejected))
        if num_void:
            progress.notice(f"{directory.path}: no client answered in {num_void} of {self._round} rounds")
        self._write_model()
        directory.write_clients(self._client_rows())
        summary = self._summary() | ({"void": num_void} if num_void else {})
        directory.write_summary(summary)
        progress.end(summary)

    def _one_round(self) -> dict[str, Any]:
        config, began = self._config, time.perf_counter()
        self._round += 1
        if self._given.begin:
            self._register(self._given.begin(self._round))
            began = time.perf_counter()  # waiting for clients is not part of the round
        everyone = any(self._algorithm.asks_all(state, self._round) for state in self._hierarchy.states)
        cohorts = self._world.gather(self._round, everyone)
        info = self._info(sum(len(cohort.asked) for cohort in cohorts))
        outcomes = self._learn(cohorts, info)
        record = describe_round(info, cohorts, list(outcomes.values()))
        if config.algorithm.server_rate is not None:
            record["server_learning_rate"] = info.server_rate
        self._void_rounds = self._void_rounds + 1 if "void" in record else 0
        record |= self._end(outcomes)
        record |= self._evaluate_if_due(info)
        self._results.note(record, self._ledger.totals)
        self._schedule = config.schedule.observe(self._schedule, seen_of(record))
        record["clock"] = self._world.clock
        record["seconds"] = time.perf_counter() - began
        self._seconds += record["seconds"]
        return record

    def _register(self, clients: RegisteredClients) -> None:
        """Use the clients that have registered by now, and grow the state with them."""
        before, after = self._num_clients, len(clients.sizes)
        if after > before:
            self._hierarchy.grow(lambda state: self._algorithm.grow(state, before, after))
            self._num_clients = after
        self._server.clients = clients

    def _explain(self, when: str, num_rejected: int) -> str:
        """Return a message that no client answered, why, and what to do."""
        explain = self._given.explain_silence
        why = explain() if explain and not num_rejected else _explain_silence(self._config, num_rejected)
        return f"no client answered {when}; {why}"

    def _learn(self, cohorts: Sequence[Cohort], info: Info) -> dict[int, Outcome]:
        """Run the round of each cell with participants, all in one call of the engine."""
        tracer, hierarchy = self._given.tracer, self._hierarchy
        cells = [cohort.cell for cohort in cohorts if cohort.present]
        infos = [info._replace(cohort=cohort.present) for cohort in cohorts if cohort.present]
        states = [hierarchy.states[cell] for cell in cells]
        replays = [tracer.replay(*told) for told in zip(states, infos, strict=True)] if tracer else []
        outcomes = drive(self._given.engine, self._algorithm, states, infos, self._world.admit(info.round, cells))
        hierarchy.take(cells, outcomes)
        for cell, own, seen in zip(cells, infos, replays, strict=False):
            if tracer and seen:
                self._directory.append_traces(tracer.lines(hierarchy.states[cell], own, seen))
        return dict(zip(cells, outcomes, strict=True))

    def _end(self, outcomes: Mapping[int, Outcome]) -> dict[str, Any]:
        """End the round: advance time, merge cells, move clients. Returns the costs as fields of its record."""
        edge, world = self._config.edge, self._world
        merges = edge.merges(self._round)
        by_cell = [outcome.replies for outcome in outcomes.values()]
        spent = world.spend(self._round, list(outcomes), by_cell, self._hierarchy.num_bytes)
        distance = self._hierarchy.merge(self._weights if edge.divided else None, edge.norms) if merges else None
        if edge.record:
            class_counts = self._given.class_counts
            described = world.describe(class_counts() if class_counts else None)
            self._directory.append_edge({"round": self._round, "merged": merges, **described})
        world.move(self._round)
        found = {} if distance is None else {"weight_divergence": distance}
        replies: list[Reply] = [reply for exchanges in by_cell for reply in exchanges]
        return found | self._ledger.charge(replies, spent)

    def _weights(self, state: Tree) -> Tensor:
        return self._algorithm.model(state, self._server.variables)["x"]

    def _info(self, num_asked: int) -> Info:
        """Return the parameters of this round."""
        return info_of(
            self._config, self._seed, self._num_clients, num_asked, self._round, self._world.seconds, self._schedule
        )

    def _evaluate_if_due(self, info: Info) -> dict[str, float]:
        """Evaluate if due. With cells, an evaluation waits for a merge; in the last round it uses a hypothetical merge.

        Selected users are the clients that download the model next: the cohort of the next round.
        """
        config, every = self._config, self._config.evaluate.every
        last = self._round == config.rounds or config.budget.spent(self._ledger.totals)
        due = config.edge.merges(self._round) and self._round % every < config.edge.period
        if not (last or due):
            return {}
        users: tuple[int, ...] = ()
        if config.evaluate.users == "selected":
            users = tuple(client for cohort in self._world.gather(self._round + 1) for client in cohort.present)
        return self._evaluation.measure(self._hierarchy.merged(), info._replace(cohort=users))

    def _client_rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row for each client that took part or whose accuracy was measured in the last evaluation."""
        notes = self._algorithm.notes(self._hierarchy.merged()) if self._algorithm.notes else {}
        known = {name: values.expand(self._num_clients).tolist() for name, values in notes.items()}
        accounts = {row["client"]: row for row in self._ledger.clients()}
        for client in sorted(accounts.keys() | self._evaluation.user_accuracies.keys()):
            row: dict[str, Any] = dict(accounts.get(client, {"client": client}))
            if client in self._evaluation.user_accuracies:
                row["user_accuracy"] = self._evaluation.user_accuracies[client]
            yield row | {name: values[client] for name, values in known.items() if not isnan(values[client])}

    def _ended_by(self) -> str | None:
        if self._stopped:
            return "callback"
        if (ended_by := self._results.ended_by) is not None:
            return ended_by
        return self._config.budget.spent(self._ledger.totals) or (
            "rounds" if self._round >= self._config.rounds else None
        )

    def _summary(self) -> dict[str, Any]:
        return {
            "rounds": self._round,
            "ended_by": self._ended_by(),
            **self._results.summary(),
            **self._ledger.totals,
            **self._results.costs_to_target(),
            "seconds": self._seconds,
        }

    def _write_model(self) -> None:
        """Write the global model's tensors by name, usable without the data and without fedge."""
        layout, variables = self._server.layout, self.model()
        tensors = {**layout.views(variables["x"]), **layout.views(variables["stats"], "stats")}
        self._directory.write_model(tensors)

    def _save(self) -> None:
        users = {
            "ids": torch.tensor(list(self._evaluation.user_accuracies), dtype=torch.int64),
            "accuracy": torch.tensor(list(self._evaluation.user_accuracies.values()), dtype=torch.float64),
        }
        tensors = nest("server", self._hierarchy.state()) | nest("world", self._world.state())
        tensors |= nest("ledger", self._ledger.state()) | nest("users", users)
        meta = {
            "round": self._round,
            "totals": self._ledger.totals,
            "metrics": self._results.metrics,
            "seconds": self._seconds,
            "schedule": self._schedule,
            "void_rounds": self._void_rounds,
            "num_clients": self._num_clients,
        }
        self._directory.save(tensors, meta)

    def _restore(self, tensors: Tree, meta: dict[str, Any]) -> None:
        fresh = nest("server", self._hierarchy.state()) | nest("world", self._world.state())
        check_checkpoint(self._directory.path / STATE, tensors, meta, fresh, self._ledger.totals)
        self._hierarchy.restore(pick("server", tensors))
        self._world.restore(pick("world", tensors))
        self._ledger.restore(meta["totals"], pick("ledger", tensors))
        self._round, self._seconds = meta["round"], meta["seconds"]
        self._results.metrics, self._void_rounds = meta["metrics"], meta["void_rounds"]
        self._num_clients = meta.get("num_clients", self._num_clients)
        for quantity, fresh in self._schedule.items():  # a resumed run may have a different schedule
            if (saved := meta.get("schedule", {}).get(quantity, {})).keys() == fresh.keys():
                self._schedule[quantity] = saved
        if users := pick("users", tensors):
            self._evaluation.user_accuracies = dict(zip(users["ids"].tolist(), users["accuracy"].tolist(), strict=True))
        self._results.review(Run(self._directory.path).rounds)


def _explain_silence(config: Config, num_rejected: int) -> str:
    edge = config.edge
    if num_rejected:
        return f'{num_rejected} answers of the last round were rejected: resume with reduce.on_bad = "stop" to see why'
    if edge.deadline_s is not None:
        return f"no client can meet edge.deadline_s = {edge.deadline_s:g}: raise it"
    return "no client was available: see edge.availability and edge.dropout"
