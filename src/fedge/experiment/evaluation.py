"""What is measured of a model, round by round."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedge.config import EvaluateOptions
from fedge.core.algorithm import Info
from fedge.core.errors import TrainingError
from fedge.core.layout import Tree
from fedge.engines import evaluate
from fedge.engines.block import Workers
from fedge.engines.job import Job


class Evaluation:
    """Measures states of the server as the options say; remembers each client's accuracy of the last time."""

    def __init__(self, options: EvaluateOptions, job: Job, workers: Workers) -> None:
        self._options, self._job, self._workers = options, job, workers
        self.user_accuracies: dict[int, float] = {}

    def measure(self, state: Tree, info: Info) -> dict[str, float]:
        """Fields of a round's record."""
        options, job, workers = self._options, self._job, self._workers
        variables = job.algorithm.model(state, job.network.variables)
        metrics = evaluate.central(job, workers, variables)
        if not np.isfinite(metrics["loss"]):
            raise TrainingError(
                f"round {info.round}: the global model's loss on the test set is {metrics['loss']}. "
                "Training has diverged: lower algorithm.learning_rate"
            )
        if options.train:
            trained = evaluate.training(job, workers, variables, info.round)
            metrics |= {"train_eval_loss": trained["loss"]}
            metrics |= {"train_accuracy": trained["accuracy"]} if "accuracy" in trained else {}
            both = metrics["loss"] + trained["loss"]
            metrics["generalisation_gap"] = (metrics["loss"] - trained["loss"]) / both if both else 0.0
        if options.user_accuracy and job.clients.task != "values":
            whose = info.cohort if options.users == "selected" else range(info.num_clients)
            self.user_accuracies = evaluate.users(job, workers, variables, whose, info)
            metrics |= self._over_users("user_accuracy", self.user_accuracies)
            if options.after_training:
                after = evaluate.trained_users(job, workers, state, whose, info)
                metrics |= self._over_users("user_accuracy_after", after)
        return metrics

    def _over_users(self, name: str, accuracies: Mapping[int, float]) -> dict[str, float]:
        """Over all clients, and over those that are not noisy if some are."""
        if not accuracies:
            return {}
        values = np.array(list(accuracies.values()))
        found = {name: float(values.mean()), f"{name}_std": float(values.std()), f"{name}_min": float(values.min())}
        noisy = set(self._job.clients.noisy.tolist())
        clean = [value for client, value in accuracies.items() if client not in noisy]
        return found | {f"{name}_clean": float(np.mean(clean))} if noisy and clean else found
