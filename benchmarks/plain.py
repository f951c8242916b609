"""Baseline without a framework: modules, torch's SGD, one client after another, a mean of state dicts."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from itertools import count, islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing import get_context
from torch.nn.functional import cross_entropy

from benchmarks.candidate import Rounds, serve
from benchmarks.workloads import RATE, WORKLOADS, Workload

State = dict[str, Tensor]


class CharacterGru(nn.Module):
    """Two GRU layers; the last state gives the output."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(79, 8)
        self.gru = nn.GRU(8, 128, num_layers=2, batch_first=True)
        self.output = nn.Linear(128, 79)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.gru(self.embedding(x))
        logits: Tensor = self.output(states[:, -1])
        return logits


def _mnist_2nn() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))


def _femnist_cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(1600, 512), nn.ReLU(), nn.Linear(512, 62)),
    )


def _mtfl_cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(2304, 512), nn.ReLU(), nn.Linear(512, 10)),
    )


def _hfl_cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 10, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(10, 30, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(480, 100), nn.ReLU(), nn.Linear(100, 10)),
    )


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mnist_2nn": _mnist_2nn,
    "femnist_cnn": _femnist_cnn,
    "shakespeare_gru": CharacterGru,
    "bag_of_words": lambda: nn.Linear(5_000, 2),
    "mtfl_cnn": _mtfl_cnn,
    "hfl_cnn": _hfl_cnn,
}


def train(model: nn.Module, x: Tensor, y: Tensor, workload: Workload) -> None:
    """Train one client for a round."""
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(workload.num_epochs):
        order = torch.randperm(len(y))
        for start in range(0, len(y) - workload.batch + 1, workload.batch):
            batch = order[start : start + workload.batch]
            optimiser.zero_grad()
            cross_entropy(model(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def tensors(workload: Workload, client: int) -> tuple[Tensor, Tensor]:
    """Return a client's samples without a copy."""
    x, y = workload.samples(client)
    return torch.from_numpy(x), torch.from_numpy(y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    serve(lambda: _prepare(WORKLOADS[options.workload], options.processes), ["torch", "numpy"])


def _prepare(workload: Workload, num_processes: int) -> Rounds:
    torch.manual_seed(1)
    model = MODELS[workload.model]()
    workload.samples(0)  # load the samples before any process is forked
    state = _floats(model)
    others = [_Process(workload, model, state, number, num_processes) for number in range(1, num_processes)]
    numbers = count(1)

    def rounds(num_rounds: int) -> None:
        for number in islice(numbers, num_rounds):
            for other in others:
                other.begin(number)
            total = _total(workload, model, state, workload.clients(number)[::num_processes])
            for other in others:
                for name, value in other.end().items():
                    total[name] += value
            for name, value in total.items():
                state[name].copy_(value)

    return rounds


def _total(workload: Workload, model: nn.Module, state: State, clients: Iterable[int]) -> State:
    """Return the sum of the states that these clients train, each weighted by its share of the cohort."""
    total = {name: torch.zeros_like(value) for name, value in state.items()}
    for client in clients:
        model.load_state_dict(state, strict=False)
        train(model, *tensors(workload, client), workload)
        for name, value in _floats(model).items():
            total[name] += value / workload.cohort
    return total


def _floats(model: nn.Module) -> State:
    """Return the tensors to average: all except BatchNorm's count of batches."""
    return {name: value.clone() for name, value in model.state_dict().items() if value.is_floating_point()}


class _Process:
    """An additional process that trains its part of each cohort."""

    def __init__(self, workload: Workload, model: nn.Module, state: State, first: int, stride: int) -> None:
        for value in state.values():
            value.share_memory_()  # type: ignore[no-untyped-call]
        self._total = {name: torch.zeros_like(value) for name, value in state.items()}
        for value in self._total.values():
            value.share_memory_()  # type: ignore[no-untyped-call]
        context = get_context("fork")
        self._pipe, theirs = context.Pipe()

        def work(pipe: Any) -> None:
            while True:
                clients = workload.clients(pipe.recv())[first::stride]
                for name, value in _total(workload, model, state, clients).items():
                    self._total[name].copy_(value)
                pipe.send("done")

        context.Process(target=work, args=(theirs,), daemon=True).start()

    def begin(self, round: int) -> None:
        self._pipe.send(round)

    def end(self) -> State:
        self._pipe.recv()
        return self._total


if __name__ == "__main__":
    main()
