"""fluke: its FedAVG, one client after another, models in memory."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.candidate import Rounds
from benchmarks.peers.candidates import allow_torchvision, run
from benchmarks.plain import MODELS
from benchmarks.workloads import RATE, Workload


def prepare(workload: Workload) -> Rounds:
    allow_torchvision()
    from fluke import DDict, FlukeENV
    from fluke.algorithms.fedavg import FedAVG
    from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader

    def loader(client: int) -> FastDataLoader:
        x, y = (torch.from_numpy(side) for side in workload.full_batches(client))
        return FastDataLoader(x, y, num_labels=workload.num_classes, batch_size=workload.batch, shuffle=True)

    environment = FlukeENV()
    environment.set_inmemory(True)
    environment.set_eval_cfg(task="classification", locals=False, server=False, pre_fit=False, post_fit=False)
    loaders = [loader(client) for client in range(workload.registered)]
    data = DummyDataContainer(loaders, [None] * len(loaders), None, workload.num_classes)
    client = DDict(
        batch_size=workload.batch,
        local_epochs=workload.num_epochs,
        loss=nn.CrossEntropyLoss,
        optimizer=DDict(name="SGD", lr=RATE),
        scheduler=DDict(name="StepLR", gamma=1, step_size=1),
    )
    hyper_params = DDict(client=client, server=DDict(weighted=True), model=MODELS[workload.model]())
    algorithm = FedAVG(workload.registered, DataSplitter(data), hyper_params)

    def rounds(count: int) -> None:
        algorithm.run(count, workload.fraction, finalize=False)

    return rounds


if __name__ == "__main__":
    run(prepare, ["fluke-fl", "torch", "numpy"])
