"""Fully connected networks. All accept inputs of any shape and flatten them."""

from __future__ import annotations

from math import prod
from typing import Annotated, Literal

from msgspec import Meta
from torch import nn

from fedge.core.errors import ModelError
from fedge.models.model import Model, NormPlace


class Linear(Model, tag="linear"):
    """A linear map without bias, for linear regression."""

    def network(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        return nn.Sequential(nn.Flatten(), nn.Linear(count_features(shape), num_outputs, bias=False))


class Logistic(Model, tag="logistic"):
    """Multinomial logistic regression."""

    def network(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        return nn.Sequential(nn.Flatten(), nn.Linear(count_features(shape), num_outputs))


class Nn(Model, tag="nn"):
    """One hidden layer of 128 units."""

    activation: Annotated[Literal["relu", "sigmoid"], Meta(description="Activation of the hidden units.")] = "relu"

    def network(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(count_features(shape), 128),
            nn.ReLU() if self.activation == "relu" else nn.Sigmoid(),
            nn.Linear(128, num_outputs),
        )


class Mnist2nn(Model, tag="mnist_2nn"):
    """MNIST-2NN: two hidden layers of 200 units."""

    def network(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(count_features(shape), 200),
            nn.ReLU(),
            nn.Linear(200, 200),
            nn.ReLU(),
            nn.Linear(200, num_outputs),
        )


class FemnistDnn(Mnist2nn, tag="femnist_dnn"):
    """FEMNIST-DNN: two hidden layers of 200 units, the same as MNIST-2NN."""


class BagOfWords(Logistic, tag="bag_of_words"):
    """A linear map from bags of words to classes (Sent140) or to tags, of which a text may have several."""


class Mtfl2nn(Model, tag="mtfl_2nn"):
    """The 2NN of MTFL: two hidden layers of 200 units, the first batch normalised."""

    norm: NormPlace = "before"

    def network(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        layers = [nn.BatchNorm1d(200), nn.ReLU()]
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(count_features(shape), 200),
            *(layers if self.norm == "before" else reversed(layers)),
            nn.Linear(200, 200),
            nn.ReLU(),
            nn.Linear(200, num_outputs),
        )


def count_features(shape: tuple[int, ...]) -> int:
    """Return the number of values in an input of this shape; raises ModelError if it is empty."""
    if not shape or min(shape) < 1:
        raise ModelError(
            f"model.name: expected inputs of at least one number, such as (784,) or (1, 28, 28), got {shape}"
        )
    return prod(shape)
