"""FedLab: its standalone pipeline with the serial trainer of FedAvg."""

from __future__ import annotations

from torch.utils.data import DataLoader, TensorDataset

from benchmarks.candidate import Rounds
from benchmarks.peers.candidates import allow_torchvision, run
from benchmarks.plain import MODELS, tensors
from benchmarks.workloads import RATE, Workload


class Federation:
    """The data set interface of FedLab: a loader for each client."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        workload.samples(0)

    def get_dataloader(self, client: int, batch_size: int) -> DataLoader:
        dataset = TensorDataset(*tensors(self._workload, client))
        return DataLoader(dataset, batch_size, shuffle=True, drop_last=True)


def prepare(workload: Workload) -> Rounds:
    allow_torchvision()
    from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
    from fedlab.core.standalone import StandalonePipeline

    model = MODELS[workload.model]()
    handler = FedAvgServerHandler(model, global_round=0, sample_ratio=workload.fraction)
    trainer = FedAvgSerialClientTrainer(model, workload.registered)
    trainer.setup_dataset(Federation(workload))
    trainer.setup_optim(workload.num_epochs, workload.batch, RATE)
    pipeline = StandalonePipeline(handler, trainer)
    pipeline.evaluate = lambda: None

    def rounds(count: int) -> None:
        handler.global_round = handler.round + count
        pipeline.main()

    return rounds


if __name__ == "__main__":
    run(prepare, ["fedlab", "torch", "numpy"])
