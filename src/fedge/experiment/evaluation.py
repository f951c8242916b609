"""Evaluation of models, round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedge.config import EvaluateOptions
from fedge.core.algorithm import Info
from fedge.core.drive import Engine, first_exchange
from fedge.core.errors import ConfigError, DataError, TrainingError
from fedge.core.fields import measured_on
from fedge.core.gate import problem_of_sums
from fedge.core.layout import Tree
from fedge.core.placement import settle
from fedge.core.question import Measure, Question, Sums, add_up, means
from fedge.core.server_side import ServerSide

_ADVICE = 'If training has diverged, lower algorithm.learning_rate; to skip bad answers set reduce.on_bad = "reject"'


class Evaluation:
    """Measures server states as configured, and stores each client's last measured accuracy."""

    def __init__(
        self, options: EvaluateOptions, server: ServerSide, engine: Engine, has_test: bool, has_validation: bool = False
    ) -> None:
        if options.at == "server" and not has_test:
            raise ConfigError('evaluate.at: the server has no test set; set evaluate.at = "clients"')
        self._options, self._server, self._engine = options, server, engine
        self._stops = server.limits.on_bad == "stop"
        self._at = options.at or ("server" if has_test else "clients")
        self._has_validation = has_validation
        self.user_accuracies: dict[int, float] = {}

    def measure(self, state: Tree, info: Info) -> dict[str, Any]:
        """Return metrics as fields of a round's record. With users = "selected", `info.cohort` are those users."""
        options, server = self._options, self._server
        variables = server.algorithm.model(state, server.variables)
        everybody = range(info.num_clients)
        found: dict[int, Sums] = {}  # answers to "test"
        if self._at == "server":
            metrics: dict[str, Any] = self._means(self._engine.test(variables))
        else:
            found = self._ask("test", variables, everybody, info)
            metrics = self._over_clients(found, "test")
        if self._has_validation:
            held_out = self._over_clients(self._ask("validation", variables, everybody, info), "validation")
            metrics |= {f"validation_{name}": value for name, value in held_out.items()}
        for name in ("loss", "validation_loss"):
            if not np.isfinite(metrics.get(name, 0.0)):
                raise TrainingError(
                    f"round {info.round}: the global model's loss on the {measured_on(name)} is {metrics[name]}. "
                    "Training has diverged: lower algorithm.learning_rate"
                )
        if options.train:
            metrics |= self._on_training_data(self._ask("train", variables, everybody, info), metrics.get("loss"))
        if options.user_accuracy and server.clients.task != "values":
            whose = info.cohort if options.users == "selected" else everybody
            if server.algorithm.personal or server.algorithm.adapt:
                found = self._ask("user", variables, whose, info)
            elif self._at == "server":  # otherwise clients have already tested the only model
                found = self._ask("test", variables, whose, info)
            self.user_accuracies = _accuracies({client: found[client] for client in whose if client in found})
            metrics |= self._over_users("user_accuracy", self.user_accuracies)
            if options.after_training:
                metrics |= self._over_users("user_accuracy_after", _accuracies(self._ask_trained(state, whose, info)))
        if found:
            metrics["evaluated_clients"] = len(found)
        return metrics | {"evaluated_at": self._at}

    def _on_training_data(self, answers: Mapping[int, Sums], test_loss: float | None) -> dict[str, float]:
        """Return accuracy and loss on all training data, and the generalisation gap."""
        trained = self._over_clients(answers, "training")
        names = {"accuracy": "train_accuracy", "loss": "train_eval_loss"}
        found = {names[name]: value for name, value in trained.items()}
        if trained and test_loss is not None:
            both = test_loss + trained["loss"]
            found["generalisation_gap"] = (test_loss - trained["loss"]) / both if both else 0.0
        return found

    def _ask(self, measure: Measure, variables: Tree, clients: Sequence[int], info: Info) -> dict[int, Sums]:
        return self._accepted(Question(measure, variables, clients), info)

    def _ask_trained(self, state: Tree, clients: Sequence[int], info: Info) -> dict[int, Sums]:
        """Evaluate the model that each client reaches in one round of local training, without storing anything."""
        server = self._server
        found: dict[int, Sums] = {}
        left = [client for client in clients if server.clients.sizes[client]]
        while left:
            # The server may ask a cohort in several parts.
            exchange = first_exchange(server.algorithm, state, info._replace(cohort=tuple(left)))
            request = server.send(exchange, info)
            asked = sorted(set(exchange.cohort).intersection(left))
            question = Question("trained", request.exchange.down, asked, exchange.work, request.coded)
            found |= self._accepted(question, info)
            left = [client for client in left if client not in asked]
        return found

    def _accepted(self, question: Question, info: Info) -> dict[int, Sums]:
        """Return the answers that pass the gate. With on_bad = "stop", raises TrainingError for one that does not."""
        found: dict[int, Sums] = {}
        question = question._replace(down=settle(question.down))
        for client, answer in self._engine.evaluate(question, info).items():
            if isinstance(answer, str):
                problem: str | None = answer
            elif (problem := self._problem(client, question.measure, answer)) is None:
                found[client] = answer
            if problem and self._stops:
                raise TrainingError(f"round {info.round}, evaluation by client {client}: {problem}. {_ADVICE}")
        return found

    def _problem(self, client: int, measure: Measure, answer: Sums) -> str | None:
        return problem_of_sums(self._server.clients, client, measure, answer, self._server.metrics)

    def _means(self, sums: Sums) -> dict[str, float]:
        """Return accuracy, loss and the values of the metrics whose sums are given."""
        found = means(sums)
        if sums.keys() >= self._server.metrics.lengths.keys() and np.isfinite(found["loss"]):
            found |= self._server.metrics.values(sums)
        return found

    def _over_clients(self, answers: Mapping[int, Sums], what: str) -> dict[str, float]:
        """Return the means over all samples of all clients with accepted answers.

        Without any answer, raises DataError, or returns nothing with on_bad = "reject".
        """
        if not answers and self._stops:
            raise DataError(
                f"evaluate: no client answered with its {what} data; check that some clients have {what} data"
            )
        return self._means(add_up(answers.values())) if answers else {}

    def _over_users(self, name: str, accuracies: Mapping[int, float]) -> dict[str, float]:
        """Return statistics over all clients, and over clean clients if some are noisy."""
        if not accuracies:
            return {}
        values = np.array(list(accuracies.values()))
        found = {name: float(values.mean()), f"{name}_std": float(values.std()), f"{name}_min": float(values.min())}
        noisy = set(self._server.clients.noisy.tolist())
        clean = [value for client, value in accuracies.items() if client not in noisy]
        return found | {f"{name}_clean": float(np.mean(clean))} if noisy and clean else found


def _accuracies(answers: Mapping[int, Sums]) -> dict[int, float]:
    return {client: sums["correct"] / sums["count"] for client, sums in sorted(answers.items())}
