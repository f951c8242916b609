"""Convolutional networks of the publications that the recipes reproduce."""

from __future__ import annotations

from math import prod
from typing import Annotated

from msgspec import Meta, field
from torch import nn

from fedge.core.errors import ModelError
from fedge.models.model import Model, NormPlace

Rate = Annotated[float, Meta(ge=0, lt=1)]


class MnistCnn(Model, tag="mnist_cnn"):
    """MNIST-CNN: padded 5x5 convolutions of 32 and 64 channels, each pooled, and 512 hidden units."""

    def network(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        channels, *sides = check_image(shape, 4, "mnist_cnn")
        return nn.Sequential(
            nn.Conv2d(channels, 32, 5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * prod(side // 2 // 2 for side in sides), 512),
            nn.ReLU(),
            nn.Linear(512, num_outputs),
        )


class CifarCnn(Model, tag="cifar_cnn"):
    """CIFAR-CNN: six 3x3 convolutions of 32, 32, 64, 64, 128 and 128 channels, batch normalised, with dropout."""

    dropout: Annotated[
        list[Rate], Meta(min_length=3, max_length=3, description="Dropout rate after each pair of convolutions.")
    ] = field(default_factory=lambda: [0.2, 0.3, 0.4])

    def network(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        channels, *sides = check_image(shape, 1, "cifar_cnn")
        layers: list[nn.Module] = []
        for width, rate in zip((32, 64, 128), self.dropout, strict=True):
            for before in (channels, width):
                layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            layers.append(nn.Dropout(rate))
            channels = width
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * prod(sides), num_outputs))


class MtflCnn(Model, tag="mtfl_cnn"):
    """The CNN of MTFL: 3x3 convolutions of 32 and 64 channels, batch normalised, and 512 hidden units."""

    dense_norm: Annotated[
        bool, Meta(description="Also batch normalise the hidden units, as in Mills, Hu & Min (2020).")
    ] = False

    norm: NormPlace = "before"

    def network(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        return _two_convolutions(shape, num_outputs, "mtfl_cnn", self.norm, dense_norm=self.dense_norm)


class FemnistCnn(Model, tag="femnist_cnn"):
    """FEMNIST-CNN: 3x3 convolutions of 32 and 64 channels, each pooled, and 512 hidden units."""

    def network(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        return _two_convolutions(shape, num_outputs, "femnist_cnn")


class Cifar100Cnn(Model, tag="cifar100_cnn"):
    """CIFAR100-CNN: 3x3 convolutions of 32 and 64 channels, each pooled, and 512 hidden units."""

    def network(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        return _two_convolutions(shape, num_outputs, "cifar100_cnn")


class HflCnn(Model, tag="hfl_cnn"):
    """The CNN of Serena (2020): 5x5 convolutions of 10 and 30 channels, each pooled, and 100 hidden units."""

    def network(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        channels, *sides = check_image(shape, 16, "hfl_cnn")
        return nn.Sequential(
            nn.Conv2d(channels, 10, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(10, 30, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(30 * prod(_shrink(_shrink(side, 5), 5) for side in sides), 100),
            nn.ReLU(),
            nn.Linear(100, num_outputs),
        )


class DynavgCnn(Model, tag="dynavg_cnn"):
    """The CNN of Reddy (2020): a 3x3 convolution of 32 channels, pooled, and 128 hidden units with dropout."""

    dropout: Annotated[float, Meta(ge=0, lt=1, description="Dropout rate of the hidden units.")] = 0.5

    def network(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        channels, *sides = check_image(shape, 4, "dynavg_cnn")
        return nn.Sequential(
            nn.Conv2d(channels, 32, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * prod(_shrink(side) for side in sides), 128),
            nn.ReLU(),
            nn.Dropout(self.dropout),
            nn.Linear(128, num_outputs),
        )


def _two_convolutions(
    shape: tuple[int, ...], num_outputs: int, name: str, norm: NormPlace | None = None, dense_norm: bool = False
) -> nn.Sequential:
    """Batch normalise before or after nonlinearities; "after" means after pooling, as in MTFL's published code."""
    channels, *sides = check_image(shape, 10, name)

    def normed(layer: nn.Module, *nonlinear: nn.Module) -> list[nn.Module]:
        return [layer, *nonlinear] if norm == "before" else [*nonlinear, layer] if norm else [*nonlinear]

    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        *normed(nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Conv2d(32, 64, 3),
        *normed(nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        nn.Linear(64 * prod(_shrink(_shrink(side)) for side in sides), 512),
        *(normed(nn.BatchNorm1d(512), nn.ReLU()) if dense_norm else [nn.ReLU()]),
        nn.Linear(512, num_outputs),
    )


def check_image(shape: tuple[int, ...], min_side: int, name: str) -> tuple[int, ...]:
    """Return the shape; raises ModelError unless it is that of images large enough for the convolutions."""
    if len(shape) != 3 or shape[0] < 1 or min(shape[1:]) < min_side:
        raise ModelError(
            f"model.name: {name} takes images (channels, height, width) of at least {min_side}x{min_side} pixels, "
            f"got inputs of shape {shape}; choose a dense model such as mtfl_2nn"
        )
    return shape


def _shrink(side: int, kernel: int = 3) -> int:
    """Return the side length after an unpadded convolution and 2x2 pooling."""
    return (side - kernel + 1) // 2
