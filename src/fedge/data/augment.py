"""Random flips and crops of training images."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor
from torch.nn.functional import pad

from fedge.core.errors import DataError
from fedge.core.keys import generator
from fedge.core.schema import Options

Side = Annotated[int, Meta(ge=1)]


class Augment(Options, tag=False):
    """Random changes of the training images; test images are only cropped, in the centre.

    The change depends on the seed, the sample and the round, not on the client that has the sample.
    """

    flip: Annotated[bool, Meta(description="Mirror images left to right, each with probability 1/2.")] = False
    crop: Annotated[Side | None, Meta(description="Side in pixels of a square to crop, at a random position.")] = None
    pad: Annotated[int, Meta(ge=0, description="Black pixels to add on each side before cropping.")] = 0

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of an augmented image; a DataError if it cannot be augmented."""
        if len(shape) != 3:
            raise DataError(f"data.augment: expected images (channels, height, width), got inputs of shape {shape}")
        if self.crop is None:
            return shape
        if self.crop > min(shape[1:]) + 2 * self.pad:
            raise DataError(
                f"data.augment.crop: {self.crop} pixels cannot be cropped from {shape[1]}x{shape[2]} with {self.pad} "
                "added on each side; lower it or raise data.augment.pad"
            )
        return (shape[0], self.crop, self.crop)

    def train(self, x: Tensor, draws: np.ndarray) -> Tensor:
        """Return augmented training images; `draws` are their rows of the result of `draw_augmentation`."""
        if self.flip:
            mirrored = torch.from_numpy(draws[:, 0] < 0.5)
            x = torch.where(mirrored[:, None, None, None], x.flip(-1), x)
        if self.crop is None:
            return x
        x = pad(x, [self.pad] * 4)
        room = np.array(x.shape[2:]) - self.crop + 1
        top, left = torch.from_numpy((draws[:, 1:] * room).astype(np.int64)).unbind(1)
        side = torch.arange(self.crop)
        image = torch.arange(len(x))[:, None, None]
        return x.movedim(1, 3)[image, (top[:, None] + side)[:, :, None], (left[:, None] + side)[:, None]].movedim(3, 1)

    def test(self, x: Tensor) -> Tensor:
        """Return test images, cropped in the centre."""
        if self.crop is None:
            return x
        x = pad(x, [self.pad] * 4)
        top, left = ((size - self.crop) // 2 for size in x.shape[2:])
        return x[..., top : top + self.crop, left : left + self.crop]


def draw_augmentation(num_samples: int, seed: int, round: int) -> np.ndarray:
    """Return three numbers in [0, 1) for each sample of the data set: for the flip and for the position of the crop."""
    return generator(seed, "augment", round=round).random((num_samples, 3))
