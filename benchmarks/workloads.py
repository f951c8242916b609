"""Workloads of the speed benchmarks. Requires only numpy, because peers import it in their own environments."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

RATE = 0.01
_POOL_BYTES = 64 << 20  # larger than the caches, yet a dozen candidates fit into memory


class Workload(NamedTuple):
    """FedAvg with SGD on a model, with a cohort of the registered clients in each round."""

    name: str
    model: str
    shape: tuple[int, ...]  # of one input
    num_classes: int
    cohort: int
    registered: int
    num_samples: int  # of each client
    batch: int
    steps: int
    macs: tuple[int, ...]  # forward multiply-accumulates of one sample, layer by layer, starting at the input
    characters: bool = False  # inputs are indexes of characters, one per class

    @property
    def num_epochs(self) -> int:
        """Number of epochs of full batches that make up the steps."""
        return self.steps // (self.num_samples // self.batch)

    @property
    def flops(self) -> int:
        """FLOPs of a round: forward pass, gradients of weights, and gradients of inputs except for the first layer."""
        return 2 * (3 * sum(self.macs) - self.macs[0]) * self.batch * self.steps * self.cohort

    @property
    def fraction(self) -> float:
        """Fraction for frameworks that round the cohort down; the added half client prevents rounding errors."""
        return (self.cohort + 0.5) / self.registered

    def clients(self, round: int) -> list[int]:
        """Return the cohort of a round."""
        return [(round * self.cohort + i) % self.registered for i in range(self.cohort)]

    def samples(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a client's inputs and classes, as views of a pool that many clients share."""
        x, y = _pool(self.shape, self.num_classes, self.num_samples * self.registered, self.characters)
        start = client * self.num_samples % (len(y) - self.num_samples + 1)
        return x[start : start + self.num_samples], y[start : start + self.num_samples]

    def full_batches(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a client's samples without a short last batch, for frameworks that would train on it."""
        count = self.num_samples // self.batch * self.batch
        x, y = self.samples(client)
        return x[:count], y[:count]


@lru_cache(maxsize=1)
def _pool(shape: tuple[int, ...], num_classes: int, most: int, characters: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    count = min(most, _POOL_BYTES // (4 * prod(shape)))
    classes = rng.integers(num_classes, size=count)
    if characters:
        return rng.integers(num_classes, size=(count, *shape)), classes
    return rng.standard_normal((count, *shape), dtype=np.float32), classes


def _conv(inputs: int, outputs: int, kernel: int, side: int) -> int:
    """Return the multiply-accumulates of a convolution with square outputs of this side."""
    return outputs * side * side * inputs * kernel * kernel


def _gru(inputs: int, units: int, length: int) -> int:
    return length * 3 * units * (inputs + units)


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("W1", "mnist_2nn", (784,), 10, 100, 200, 300, 20, 15, (784 * 200, 200 * 200, 200 * 10)),
        Workload(
            *("W2", "femnist_cnn", (1, 28, 28), 62, 30, 3_000, 170, 32, 10),
            macs=(_conv(1, 32, 3, 26), _conv(32, 64, 3, 11), 1600 * 512, 512 * 62),
        ),
        Workload(
            *("W3", "shakespeare_gru", (80,), 79, 7, 100, 320, 32, 10),
            macs=(0, _gru(8, 128, 80), _gru(128, 128, 80), 128 * 79),  # the embedding multiplies nothing
            characters=True,
        ),
        Workload("W4", "bag_of_words", (5_000,), 2, 50, 21_876, 15, 8, 10, (5_000 * 2,)),
        Workload(
            *("W5", "mtfl_cnn", (3, 32, 32), 10, 20, 200, 250, 20, 12),
            macs=(_conv(3, 32, 3, 30), _conv(32, 64, 3, 13), 2304 * 512, 512 * 10),
        ),
        Workload(
            *("W6", "hfl_cnn", (1, 28, 28), 10, 20, 200, 300, 20, 15),
            macs=(_conv(1, 10, 5, 24), _conv(10, 30, 5, 8), 480 * 100, 100 * 10),
        ),
    )
}
