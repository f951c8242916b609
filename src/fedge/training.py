"""One run in progress: rounds, evaluation, records, checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch

from fedge.config import Config
from fedge.core.algorithm import Info, Reply, drive
from fedge.core.errors import TrainingError
from fedge.core.layout import nest, pick
from fedge.core.progress import Progress
from fedge.edge.ledger import Ledger
from fedge.engines import evaluate
from fedge.engines.choice import choose
from fedge.runs.directory import RunDirectory
from fedge.runs.pace import Pace
from fedge.runs.read import Run
from fedge.schedules import Seen
from fedge.setup import Setup, info_of

_COSTS_TO_TARGET = ("bytes_up", "bytes_down", "local_steps", "flops", "sim_seconds")


class Training:
    """A run: its state after some number of rounds."""

    def __init__(self, config: Config, seed: int, directory: RunDirectory, progress: Progress) -> None:
        self._config, self._directory, self._progress = config, directory, progress
        self._seed = seed
        setup = Setup.of(config, self._seed)
        self._algorithm, self._variables = setup.algorithm, setup.network.variables
        self._job = setup.job(config, directory.kept_store(setup.algorithm.keep(self._variables)))
        evaluate.prepare(self._job)
        self._chosen = choose(
            config.engine,
            self._job,
            config.selection.number(len(setup.clients.sizes)),
            lambda: Setup.of(config, seed).job(config, self._job.kept),
            directory.facts.get("rows"),
            progress.notice,
        )
        self._ledger = Ledger()
        self._state = setup.algorithm.init(self._variables)
        self._round = 0
        self._seconds = 0.0
        self._metrics: dict[str, dict[str, float]] = {"last": {}, "best": {}}
        self._to_target: dict[str, float] | None = None
        self._schedule = config.schedule.init()
        self._user_accuracies: dict[int, float] = {}
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
        info = self._info()
        replays = config.trace.replay(self._job, self._state, info) if config.trace else []
        (outcome,) = drive(self._chosen.engine, self._algorithm, [self._state], [info])
        self._state = outcome.state
        if config.trace and replays:
            self._directory.append_traces(config.trace.lines(self._job, self._state, info, replays))
        replies = list(outcome.replies)
        record = _describe(info, replies) | ({"void": True} if outcome.void else {})
        if config.algorithm.server_rate is not None:
            record["server_learning_rate"] = info.server_rate
        record |= self._ledger.charge(replies, config.edge.times(replies, self._seed))
        last = self._round == config.rounds or config.budget.spent(self._ledger.totals)
        if last or self._round % config.evaluate.every == 0:
            record |= self._evaluate(info)
        self._note(record)
        metric = "accuracy" if "accuracy" in record else "loss"
        seen = Seen(record.get("train_loss"), record.get(metric), higher_is_better=metric == "accuracy")
        self._schedule = config.schedule.observe(self._schedule, seen)
        record["seconds"] = time.perf_counter() - began
        self._seconds += record["seconds"]
        return record

    def _info(self) -> Info:
        """What the server says of this round."""
        num_clients, sim_seconds = len(self._job.clients.sizes), self._ledger.totals["sim_seconds"]
        return info_of(self._config, self._seed, num_clients, self._round, sim_seconds, self._schedule)

    def _evaluate(self, info: Info) -> dict[str, float]:
        options, workers = self._config.evaluate, self._chosen.workers
        variables = self._algorithm.model(self._state, self._variables)
        metrics = evaluate.central(self._job, workers, variables)
        if not np.isfinite(metrics["loss"]):
            raise TrainingError(
                f"round {info.round}: the global model's loss on the test set is {metrics['loss']}. "
                "Training has diverged: lower algorithm.learning_rate"
            )
        if options.train:
            trained = evaluate.training(self._job, workers, variables, info.round)
            metrics |= {"train_eval_loss": trained["loss"]}
            metrics |= {"train_accuracy": trained["accuracy"]} if "accuracy" in trained else {}
            both = metrics["loss"] + trained["loss"]
            metrics["generalisation_gap"] = (metrics["loss"] - trained["loss"]) / both if both else 0.0
        if options.user_accuracy and self._job.clients.task != "values":
            whose = info.cohort if options.users == "selected" else range(info.num_clients)
            self._user_accuracies = evaluate.users(self._job, workers, variables, whose, info)
            metrics |= self._over_users("user_accuracy", self._user_accuracies)
            if options.after_training:
                after = evaluate.trained_users(self._job, workers, self._state, whose, info)
                metrics |= self._over_users("user_accuracy_after", after)
        return metrics

    def _over_users(self, name: str, accuracies: Mapping[int, float]) -> dict[str, float]:
        """Fields of a record: over all clients, and over those that are not noisy if some are."""
        if not accuracies:
            return {}
        values = np.array(list(accuracies.values()))
        found = {name: float(values.mean()), f"{name}_std": float(values.std()), f"{name}_min": float(values.min())}
        noisy = set(self._job.clients.noisy.tolist())
        clean = [value for client, value in accuracies.items() if client not in noisy]
        return found | {f"{name}_clean": float(np.mean(clean))} if noisy and clean else found

    def _client_rows(self) -> Iterator[dict[str, Any]]:
        """One row for each client that took part or whose accuracy was measured in the last evaluation."""
        accounts = {row["client"]: row for row in self._ledger.clients()}
        for client in sorted(accounts.keys() | self._user_accuracies.keys()):
            row: dict[str, Any] = dict(accounts.get(client, {"client": client}))
            if client in self._user_accuracies:
                row["user_accuracy"] = self._user_accuracies[client]
            yield row

    def _note(self, record: Mapping[str, Any]) -> None:
        """Remember the last and the best of each metric, and what the target cost when it was first reached."""
        last, best = self._metrics["last"], self._metrics["best"]
        for name in ("accuracy", "user_accuracy", "loss"):
            if name in record:
                last[name] = record[name]
                better = min if name == "loss" else max
                best[name] = better(best.get(name, record[name]), record[name])
        target = self._config.target
        if target and self._to_target is None and target.reached(record):
            totals = self._ledger.totals
            self._to_target = {"rounds": self._round, **{name: totals[name] for name in _COSTS_TO_TARGET}}

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
            **{f"{name}_to_target": reached.get(name) for name in ("rounds", *_COSTS_TO_TARGET)},
            "seconds": self._seconds,
        }

    def _save(self) -> None:
        users = {
            "ids": torch.tensor(list(self._user_accuracies), dtype=torch.int64),
            "accuracy": torch.tensor(list(self._user_accuracies.values()), dtype=torch.float64),
        }
        tensors = nest("server", self._state) | nest("ledger", self._ledger.state()) | nest("users", users)
        meta = {
            "round": self._round,
            "totals": self._ledger.totals,
            "metrics": self._metrics,
            "seconds": self._seconds,
            "schedule": self._schedule,
        }
        self._directory.save(tensors, meta)

    def _restore(self, tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> None:
        self._state = pick("server", tensors)
        self._ledger.restore(meta["totals"], pick("ledger", tensors))
        self._round, self._seconds = meta["round"], meta["seconds"]
        self._metrics = meta["metrics"]
        for quantity, fresh in self._schedule.items():  # a resumed run may have another schedule
            if (saved := meta.get("schedule", {}).get(quantity, {})).keys() == fresh.keys():
                self._schedule[quantity] = saved
        if users := pick("users", tensors):
            self._user_accuracies = dict(zip(users["ids"].tolist(), users["accuracy"].tolist(), strict=True))
        self._to_target = self._find_target(Run(self._directory.path).rounds)

    def _find_target(self, records: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
        """What the target cost, from the records: it may be another one than when they were written."""
        spent = dict.fromkeys(_COSTS_TO_TARGET, 0)
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


def _describe(info: Info, replies: Sequence[Reply]) -> dict[str, Any]:
    """What a record says of who took part and how much they did."""
    losses = np.concatenate([reply.losses for reply in replies])
    losses = losses[~np.isnan(losses)]
    measured = {
        "num_local_steps": info.num_steps,
        "num_local_epochs": info.num_epochs,
        "train_loss": float(losses.mean()) if len(losses) else None,
        "cosine_distance": replies[0].cosine_distance,
    }
    return {
        "round": info.round,
        "cohort": len(info.cohort),
        "reported": len(replies[0].ids),
        "dropped": len(replies[0].missing),
        "learning_rate": info.rate,
        **{name: value for name, value in measured.items() if value is not None},
    }
