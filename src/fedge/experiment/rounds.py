"""One run in progress: rounds, evaluation, records, checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from math import isnan
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedge.config import Config
from fedge.core.algorithm import Info, Outcome, Reply, drive
from fedge.core.errors import RunError, VoidError
from fedge.core.fields import COSTS_TO_TARGET, METRICS, TO_TARGET, describe
from fedge.core.layout import Tree, nest, pick
from fedge.core.progress import Progress
from fedge.edge.ledger import Ledger
from fedge.edge.world import Cohort
from fedge.engines import evaluate
from fedge.experiment.engine_choice import choose
from fedge.experiment.evaluation import Evaluation
from fedge.experiment.setup import Setup, info_of
from fedge.experiment.trace import Tracer
from fedge.runs.directory import RunDirectory
from fedge.runs.pace import Pace
from fedge.runs.read import Run
from fedge.schedules import Seen


class TrainingRun:
    """A run: its state after some number of rounds."""

    def __init__(self, config: Config, seed: int, directory: RunDirectory, progress: Progress) -> None:
        self._config, self._directory, self._progress = config, directory, progress
        self._seed = seed
        setup = Setup.of(config, self._seed)
        self._algorithm, self._variables = setup.algorithm, setup.network.variables
        self._job = setup.job(config, directory.kept_store(setup.algorithm.keep(self._variables)))
        evaluate.prepare(self._job)
        self._world = setup.world(config, seed)
        self._hierarchy = setup.hierarchy(config)
        self._chosen = choose(
            config.engine,
            self._job,
            sum(len(cohort.asked) for cohort in self._world.gather(1)) or 1,
            lambda: Setup.of(config, seed).job(config, self._job.kept),
            directory.facts.get("rows"),
            progress.notice,
        )
        self._ledger = Ledger()
        self._round = 0
        self._void_rounds = 0  # the last ones, without a break
        self._seconds = 0.0
        self._metrics: dict[str, dict[str, float]] = {"last": {}, "best": {}}
        self._to_target: dict[str, float] | None = None
        self._schedule = config.schedule.init()
        self._evaluation = Evaluation(config.evaluate, self._job, self._chosen.workers)
        if (restored := directory.restore()) is not None:
            self._restore(*restored)

    def run(self) -> None:
        """Train to the end."""
        self._directory.note(self._chosen.facts)
        with closing(self._chosen):
            self._run()

    def _run(self) -> None:
        config, directory, progress = self._config, self._directory, self._progress
        self._say_what_to_know()
        progress.begin(str(directory.path), self._round + 1, config.rounds)
        pace = Pace(config.checkpoint.every, last=self._round)
        started, saving = time.perf_counter(), 0.0
        while self._ended_by() is None:
            record = self._one_round()
            directory.append(record)
            progress.round(record)
            if self._void_rounds >= config.edge.max_void_rounds:
                self._save()
                raise VoidError(_explain_silence(config, self._void_rounds))
            now = time.perf_counter()
            if pace.due(self._round, now - started, saving):
                self._save()
                saving += time.perf_counter() - now
        self._save()
        directory.write_clients(self._client_rows())
        summary = self._summary()
        directory.write_summary(summary)
        progress.end(summary)

    def _one_round(self) -> dict[str, Any]:
        config, began = self._config, time.perf_counter()
        self._round += 1
        cohorts = self._world.gather(self._round)
        info = self._info(sum(len(cohort.asked) for cohort in cohorts))
        outcomes = self._learn(cohorts, info)
        replies = [reply for outcome in outcomes.values() for reply in outcome.replies]
        record = _describe(info, cohorts, list(outcomes.values()))
        if config.algorithm.server_rate is not None:
            record["server_learning_rate"] = info.server_rate
        self._void_rounds = self._void_rounds + 1 if "void" in record else 0
        record |= self._end(outcomes, replies)
        record |= self._evaluate_if_due(info, cohorts)
        self._note(record)
        metric = "accuracy" if "accuracy" in record else "loss"
        seen = Seen(record.get("train_loss"), record.get(metric), higher_is_better=describe(metric).better == "higher")
        self._schedule = config.schedule.observe(self._schedule, seen)
        record["seconds"] = time.perf_counter() - began
        self._seconds += record["seconds"]
        return record

    def _learn(self, cohorts: Sequence[Cohort], info: Info) -> dict[int, Outcome]:
        """The round of each cell in which somebody is present, all in one call of the engine."""
        trace, hierarchy = Tracer(self._config.trace) if self._config.trace else None, self._hierarchy
        cells = [cohort.cell for cohort in cohorts if cohort.present]
        infos = [info._replace(cohort=cohort.present) for cohort in cohorts if cohort.present]
        states = [hierarchy.states[cell] for cell in cells]
        replays = [trace.replay(self._job, *told) for told in zip(states, infos, strict=True)] if trace else []
        outcomes = drive(self._chosen.engine, self._algorithm, states, infos, self._world.admit(info.round))
        hierarchy.take(cells, outcomes)
        for cell, own, seen in zip(cells, infos, replays, strict=False):
            if trace and seen:
                self._directory.append_traces(trace.lines(self._job, hierarchy.states[cell], own, seen))
        return dict(zip(cells, outcomes, strict=True))

    def _end(self, outcomes: Mapping[int, Outcome], replies: Sequence[Reply]) -> dict[str, Any]:
        """Let time pass, cells agree and clients move; what the round cost, as fields of its record."""
        edge, world = self._config.edge, self._world
        merges = edge.merges(self._round)
        by_cell = [outcome.replies for outcome in outcomes.values()]
        spent = world.spend(self._round, list(outcomes), by_cell, self._hierarchy.num_bytes)
        distance = self._hierarchy.merge(self._weights if edge.divided else None, edge.norms) if merges else None
        if edge.record:
            self._directory.append_edge({"round": self._round, "merged": merges, **world.describe(), **self._classes()})
        world.move(self._round)
        found = {} if distance is None else {"weight_divergence": distance}
        return found | self._ledger.charge(replies, spent)

    def _weights(self, state: Tree) -> Tensor:
        return self._algorithm.model(state, self._variables)["x"]

    def _classes(self) -> dict[str, list[list[int]]]:
        """How many training samples of each class the clients of each cell have."""
        if self._job.clients.task != "classes":
            return {}
        counts = np.zeros((self._config.edge.cell_grid.num_cells, self._job.clients.num_outputs), np.int64)
        np.add.at(counts, self._world.places.cells, self._class_counts)
        return {"classes": counts.tolist()}

    @cached_property
    def _class_counts(self) -> np.ndarray:
        clients = self._job.clients
        labels = (clients.train(client, 1).y.numpy() for client in range(len(clients.sizes)))
        return np.stack([np.bincount(y, minlength=clients.num_outputs) for y in labels])

    def _info(self, num_asked: int) -> Info:
        """What the server says of this round."""
        num_clients = len(self._job.clients.sizes)
        return info_of(
            self._config, self._seed, num_clients, num_asked, self._round, self._world.seconds, self._schedule
        )

    def _evaluate_if_due(self, info: Info, cohorts: Sequence[Cohort]) -> dict[str, float]:
        """An evaluation waits until cells have agreed; that of the last round is of what a merge would come to."""
        config, every = self._config, self._config.evaluate.every
        last = self._round == config.rounds or config.budget.spent(self._ledger.totals)
        due = config.edge.merges(self._round) and self._round % every < config.edge.period
        if not (last or due):
            return {}
        present = tuple(client for cohort in cohorts for client in cohort.present)
        return self._evaluation.measure(self._hierarchy.merged(), info._replace(cohort=present))

    def _client_rows(self) -> Iterator[dict[str, Any]]:
        """One row for each client that took part or whose accuracy was measured in the last evaluation."""
        notes = self._algorithm.notes(self._hierarchy.merged()) if self._algorithm.notes else {}
        known = {name: values.expand(len(self._job.clients.sizes)).tolist() for name, values in notes.items()}
        accounts = {row["client"]: row for row in self._ledger.clients()}
        for client in sorted(accounts.keys() | self._evaluation.user_accuracies.keys()):
            row: dict[str, Any] = dict(accounts.get(client, {"client": client}))
            if client in self._evaluation.user_accuracies:
                row["user_accuracy"] = self._evaluation.user_accuracies[client]
            yield row | {name: values[client] for name, values in known.items() if not isnan(values[client])}

    def _note(self, record: Mapping[str, Any]) -> None:
        """Remember the last and the best of each metric, and what the target cost when it was first reached."""
        last, best = self._metrics["last"], self._metrics["best"]
        for name in METRICS:
            if name in record:
                last[name] = record[name]
                best[name] = min(best.get(name, record[name]), record[name], key=describe(name).rank)
        target = self._config.target
        if target and self._to_target is None and target.reached(record):
            totals = self._ledger.totals
            self._to_target = {"rounds": self._round, **{name: totals[name] for name in COSTS_TO_TARGET}}

    def _ended_by(self) -> str | None:
        target = self._config.target
        if target and target.stop and self._to_target is not None:
            return "target"
        return self._config.budget.spent(self._ledger.totals) or (
            "rounds" if self._round >= self._config.rounds else None
        )

    def _summary(self) -> dict[str, Any]:
        reached = self._to_target or {}
        return {
            "rounds": self._round,
            "ended_by": self._ended_by(),
            **self._metrics["last"],
            **{f"best_{name}": value for name, value in self._metrics["best"].items()},
            **self._ledger.totals,
            **{name + TO_TARGET: reached.get(name) for name in ("rounds", *COSTS_TO_TARGET)},
            "seconds": self._seconds,
        }

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
            "metrics": self._metrics,
            "seconds": self._seconds,
            "schedule": self._schedule,
            "void_rounds": self._void_rounds,
        }
        self._directory.save(tensors, meta)

    def _restore(self, tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> None:
        if "void_rounds" not in meta:
            raise RunError(
                f"{self._directory.path} was begun with fedge 0.1.0, whose checkpoints this version cannot read; "
                "finish it with that version, or start the run again"
            )
        self._hierarchy.restore(pick("server", tensors))
        self._world.restore(pick("world", tensors))
        self._ledger.restore(meta["totals"], pick("ledger", tensors))
        self._round, self._seconds = meta["round"], meta["seconds"]
        self._metrics, self._void_rounds = meta["metrics"], meta["void_rounds"]
        for quantity, fresh in self._schedule.items():  # a resumed run may have another schedule
            if (saved := meta.get("schedule", {}).get(quantity, {})).keys() == fresh.keys():
                self._schedule[quantity] = saved
        if users := pick("users", tensors):
            self._evaluation.user_accuracies = dict(zip(users["ids"].tolist(), users["accuracy"].tolist(), strict=True))
        self._to_target = self._find_target(Run(self._directory.path).rounds)

    def _find_target(self, records: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
        """What the target cost, from the records: it may be another one than when they were written."""
        spent = dict.fromkeys(COSTS_TO_TARGET, 0)
        for record in records:
            spent = {name: before + record[name] for name, before in spent.items()}
            if self._config.target and self._config.target.reached(record):
                return {"rounds": record["round"], **spent}
        return None

    def _say_what_to_know(self) -> None:
        config, size = self._config, self._config.algorithm.batch_size
        if self._job.network.has_norm and config.personal is None:
            self._progress.notice(
                "model: its BatchNorm parameters and statistics are averaged like all others; "
                'to keep them private set personal.private = "bn", or "none" to say that this is meant'
            )
        if config.schedule.needs_metric:
            self._progress.notice("schedule: watches the test set, as there is no validation set")
        small = int(np.count_nonzero(self._job.clients.sizes < size))
        if small:
            self._progress.notice(
                f"data: {small} clients have fewer samples than a batch of {size} and use all they have"
            )


def _describe(info: Info, cohorts: Sequence[Cohort], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What a record says of who took part and how much they did."""
    replies = [reply for outcome in outcomes for reply in outcome.replies]
    losses = np.concatenate([reply.losses for reply in replies] or [np.zeros(0)])
    losses = losses[~np.isnan(losses)]
    first = [outcome.replies[0] for outcome in outcomes]
    distances = [reply.cosine_distance for reply in first if reply.cosine_distance is not None]
    measured = {
        "num_local_steps": info.num_steps,
        "num_local_epochs": info.num_epochs,
        "train_loss": float(losses.mean()) if len(losses) else None,
        "cosine_distance": float(np.mean(distances)) if distances else None,
        "void": all(outcome.void for outcome in outcomes) or None,
    }
    asked, reported = sum(len(cohort.asked) for cohort in cohorts), sum(len(reply.ids) for reply in first)
    return {
        "round": info.round,
        "cohort": asked,
        "reported": reported,
        "dropped": asked - reported,
        "learning_rate": info.rate,
        **{name: value for name, value in measured.items() if value is not None},
    }


def _explain_silence(config: Config, num_rounds: int) -> str:
    edge = config.edge
    if edge.deadline_s is not None:
        what = f"no client can meet edge.deadline_s = {edge.deadline_s:g}: raise it"
    else:
        what = "no client could be asked: see edge.availability and edge.dropout"
    return (
        f"nobody answered in {num_rounds} rounds one after another, as many as edge.max_void_rounds allows; {what}, or "
        "raise edge.max_void_rounds"
    )
