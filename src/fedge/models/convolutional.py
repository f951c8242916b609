"""Convolutional networks."""

from __future__ import annotations

from torch import nn

from fedge.core.errors import ModelError
from fedge.core.schema import Options

MIN_SIDE = 10  # 10 -> 8 -> 4 -> 2 -> 1 through two valid 3x3 convolutions, each followed by 2x2 pooling


class MtflCnn(Options, tag="mtfl_cnn"):
    """The CNN of MTFL: 3x3 convolutions of 32 and 64 channels, batch normalised, and 512 hidden units."""

    def build(self, shape: tuple[int, ...], num_outputs: int) -> nn.Sequential:
        if len(shape) != 3 or shape[0] < 1 or min(shape[1:]) < MIN_SIDE:
            raise ModelError(
                "model.name: mtfl_cnn takes images (channels, height, width) "
                f"of at least {MIN_SIDE}x{MIN_SIDE} pixels, got inputs of shape {shape}; "
                "choose a dense model such as mtfl_2nn"
            )
        channels, height, width = shape
        return nn.Sequential(
            nn.Conv2d(channels, 32, 3),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * _shrink(_shrink(height)) * _shrink(_shrink(width)), 512),
            nn.ReLU(),
            nn.Linear(512, num_outputs),
        )


def _shrink(side: int) -> int:
    """After a valid 3x3 convolution and 2x2 pooling."""
    return (side - 2) // 2
