"""pfl-research: SimulatedBackend in one process. pfl does not average BatchNorm statistics."""

from __future__ import annotations

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.candidate import Rounds
from benchmarks.peers.candidates import run
from benchmarks.plain import MODELS
from benchmarks.workloads import RATE, Workload

_NEVER = 1 << 60


class Classifier(nn.Module):
    """The module interface of pfl: with loss and metrics."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.train()
        return cross_entropy(self.network(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(self.loss(x, y).item() * len(y), len(y))}


def prepare(workload: Workload) -> Rounds:
    def dataset(user: int) -> PyTorchTensorDataset:
        x, y = workload.full_batches(user)
        return PyTorchTensorDataset((torch.from_numpy(x), torch.from_numpy(y)), user_id=str(user))

    workload.samples(0)
    users = FederatedDataset(dataset, get_user_sampler("minimize_reuse", range(workload.registered)))
    backend = SimulatedBackend(training_data=users, val_data=users)
    module = Classifier(MODELS[workload.model]())
    model = PyTorchModel(
        module, local_optimizer_create=torch.optim.SGD, central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0)
    )
    training = NNTrainHyperParams(
        local_num_epochs=workload.num_epochs, local_learning_rate=RATE, local_batch_size=workload.batch
    )
    algorithm, done = FederatedAveraging(), 0

    def rounds(count: int) -> None:
        nonlocal done
        done += count  # the algorithm continues its count
        params = NNAlgorithmParams(
            central_num_iterations=done,
            evaluation_frequency=_NEVER,
            train_cohort_size=workload.cohort,
            val_cohort_size=None,
        )
        algorithm.run(params, backend, model, training, send_metrics_to_platform=False)

    return rounds


if __name__ == "__main__":
    run(prepare, ["pfl", "torch", "numpy"])
