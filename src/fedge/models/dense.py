"""Fully connected networks. All take inputs of any shape, flattened."""

from __future__ import annotations

from math import prod

from torch import nn

from fedge.core.errors import ModelError
from fedge.core.schema import Options


class Linear(Options, tag="linear"):
    """A linear map without bias, for linear regression."""

    def build(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        return nn.Sequential(nn.Flatten(), nn.Linear(count_features(shape), num_outputs, bias=False))


class Logistic(Options, tag="logistic"):
    """Multinomial logistic regression."""

    def build(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        return nn.Sequential(nn.Flatten(), nn.Linear(count_features(shape), num_outputs))


class Nn(Options, tag="nn"):
    """One hidden layer of 128 units."""

    def build(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(count_features(shape), 128),
            nn.ReLU(),
            nn.Linear(128, num_outputs),
        )


class Mnist2nn(Options, tag="mnist_2nn"):
    """MNIST-2NN: two hidden layers of 200 units."""

    def build(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(count_features(shape), 200),
            nn.ReLU(),
            nn.Linear(200, 200),
            nn.ReLU(),
            nn.Linear(200, num_outputs),
        )


class Mtfl2nn(Options, tag="mtfl_2nn"):
    """The 2NN of MTFL: two hidden layers of 200 units, batch normalisation after the first."""

    def build(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(count_features(shape), 200),
            nn.BatchNorm1d(200),
            nn.ReLU(),
            nn.Linear(200, 200),
            nn.ReLU(),
            nn.Linear(200, num_outputs),
        )


def count_features(shape: tuple[int, ...]) -> int:
    """How many numbers an input of this shape has."""
    if not shape or min(shape) < 1:
        raise ModelError(
            f"model.name: expected inputs of at least one number, such as (784,) or (1, 28, 28), got {shape}"
        )
    return prod(shape)
