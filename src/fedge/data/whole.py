"""A data set before it is divided: training and test samples, and what is known of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from fedge.core.registered import Task
from fedge.data.partition import Labels

_CHUNK = 4096  # samples that are looked at together


class Inputs(Protocol):
    """Inputs of samples: a tensor, or what makes its rows when they are asked for."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, rows: Tensor) -> Tensor: ...


class SamplePool(NamedTuple):
    """Samples of which some are given out: inputs, and targets as a tensor."""

    x: Inputs
    y: Tensor


class Whole(NamedTuple):
    """A data set before it is divided. Images may stay bytes, which take a quarter of the memory."""

    train: SamplePool
    test: SamplePool
    num_outputs: int
    task: Task = "classes"
    full_scale: int = 1  # inputs are divided by it when they are given out
    words: bool = False  # inputs are numbers of words or characters, and given out as integers
    columns: Mapping[str, tuple[np.ndarray, np.ndarray]] = {}  # more about training and test samples: who wrote them
    classes: tuple[str, ...] = ()  # names of the classes, where the data has them
    described: tuple[str, ...] = ()  # names that are shown where data has numbers for classes: never matched
    features: tuple[str, ...] = ()  # names of the inputs of rows, where the data has them

    def labels(self) -> tuple[Labels, Labels]:
        """What partitioners know of the training and the test samples."""
        return (
            Labels(self.train.y.numpy(), {name: column[0] for name, column in self.columns.items()}),
            Labels(self.test.y.numpy(), {name: column[1] for name, column in self.columns.items()}),
        )


def without_samples(pool: SamplePool) -> SamplePool:
    """Return an empty pool of samples of the same kind: in place of those that nobody will ask for."""
    none = torch.empty(0, dtype=torch.int64)
    return SamplePool(pool.x[none], pool.y[none])


def chunks(x: Inputs) -> Iterator[Tensor]:
    """Return the inputs of all samples, some at a time."""
    return (x[rows] for rows in torch.split(torch.arange(x.shape[0]), _CHUNK))
