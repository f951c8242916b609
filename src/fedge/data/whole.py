"""A data set before it is divided: training and test samples, and information about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from fedge.core.registered import Task
from fedge.data.partition import Labels

_CHUNK = 4096  # samples that are processed together


class Inputs(Protocol):
    """Inputs of samples: a tensor, or an object that computes its rows on request."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __getitem__(self, rows: Tensor) -> Tensor: ...


class SamplePool(NamedTuple):
    """Samples to select from: inputs, and targets as a tensor."""

    x: Inputs
    y: Tensor


class Whole(NamedTuple):
    """A data set before it is divided. Images may be stored as bytes, which take a quarter of the memory."""

    train: SamplePool
    test: SamplePool
    num_outputs: int
    task: Task = "classes"
    full_scale: int = 1  # inputs are divided by it when samples are selected
    words: bool = False  # inputs are indexes of words or characters, and stay integers
    columns: Mapping[
        str, tuple[np.ndarray, np.ndarray]
    ] = {}  # further columns of training and test samples, such as the writer
    classes: tuple[str, ...] = ()  # names of the classes, if the data has them
    described: tuple[str, ...] = ()  # names to show for classes that the data only numbers; never used for matching
    features: tuple[str, ...] = ()  # names of the input columns, if the data has them

    def labels(self) -> tuple[Labels, Labels]:
        """Return what partitioners know about the training and the test samples."""
        return (
            Labels(self.train.y.numpy(), {name: column[0] for name, column in self.columns.items()}),
            Labels(self.test.y.numpy(), {name: column[1] for name, column in self.columns.items()}),
        )


def without_samples(pool: SamplePool) -> SamplePool:
    """Return an empty pool of the same kind, for samples that are not needed."""
    none = torch.empty(0, dtype=torch.int64)
    return SamplePool(pool.x[none], pool.y[none])


def chunks(x: Inputs) -> Iterator[Tensor]:
    """Return an iterator over the inputs of all samples, in chunks."""
    return (x[rows] for rows in torch.split(torch.arange(x.shape[0]), _CHUNK))
