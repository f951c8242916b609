"""A data set that exists as a whole and is divided over clients."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from fedge.core.keys import generator
from fedge.core.schema import Options
from fedge.data.clients import Samples
from fedge.data.partition import Iid, Partition, Split


class Noise(Options, tag=False, kw_only=True):
    """Gaussian noise on the training inputs of some clients, clipped to the range of the training data."""

    fraction: Annotated[float, Meta(ge=0, le=1, description="Share of the clients that are noisy.")]
    std: Annotated[float, Meta(ge=0, le=1e6, description="Standard deviation, in units of the model's inputs.")]


class Whole(NamedTuple):
    """A data set before it is divided. Images may stay bytes, which take a quarter of the memory."""

    train: Samples
    test: Samples
    num_outputs: int
    full_scale: int = 1  # inputs are divided by it when they are given out


class DividedClients:
    """Clients whose samples are cut out of a whole data set."""

    def __init__(self, whole: Whole, split: Split, noise: Noise | None, seed: int) -> None:
        self.shape: tuple[int, ...] = tuple(whole.train.x.shape[1:])
        self.num_outputs = whole.num_outputs
        self.regression = whole.train.y.is_floating_point()
        self.sizes = np.array([len(indices) for indices in split.train])
        self.noisy = _draw_noisy(len(self.sizes), noise.fraction if noise else 0.0, seed)
        self._whole, self._split, self._seed = whole, split, seed
        self._std = noise.std if noise else 0.0
        self._low, self._high = (extreme / whole.full_scale for extreme in whole.train.x.aminmax())

    def train(self, client: int) -> Samples:
        x, y = self._cut(self._whole.train, self._split.train[client])
        if client in self.noisy:
            rng = generator(self._seed, "noise", client)
            noise = torch.from_numpy(rng.standard_normal(x.shape, dtype=np.float32))
            x = x.add(noise, alpha=self._std).clamp_(self._low, self._high)
        return Samples(x, y)

    def test(self, client: int) -> Samples:
        return self._cut(self._whole.test, self._split.test[client])

    def pooled_test(self) -> Samples:
        x, y = self._whole.test
        return Samples(self._scale(x), y)

    def _cut(self, samples: Samples, indices: np.ndarray) -> Samples:
        chosen = torch.from_numpy(indices)
        return Samples(self._scale(samples.x[chosen]), samples.y[chosen])

    def _scale(self, x: Tensor) -> Tensor:
        return x.to(torch.float32) / self._whole.full_scale


class Divided(Options):
    """What every data set that is divided over clients can be told."""

    clients: Annotated[int, Meta(ge=1, description="Number of clients.")] = 100
    partition: Annotated[Partition, Meta(description="How samples are dealt to clients.")] = Iid()
    noise: Annotated[Noise | None, Meta(description="Noise on the training inputs of some clients.")] = None

    def divide(self, whole: Whole, seed: int) -> DividedClients:
        rng = generator(seed, "partition")
        split = self.partition.split(whole.train.y.numpy(), whole.test.y.numpy(), self.clients, rng)
        return DividedClients(whole, split, self.noise, seed)


def _draw_noisy(num_clients: int, fraction: float, seed: int) -> np.ndarray:
    count = int(fraction * num_clients + 0.5)
    return np.sort(generator(seed, "noisy clients").choice(num_clients, count, replace=False))
