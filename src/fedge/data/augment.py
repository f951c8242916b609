"""Training images that are flipped and cropped at random."""

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
    """Random changes of the training images; test images are only cropped, in the middle.

    What happens to a sample depends on the seed, the sample and the round, not on the client that has it.
    """

    flip: Annotated[bool, Meta(description="Mirror every other image, left to right.")] = False
    crop: Annotated[
        Side | None, Meta(description="Cut out a square of this many pixels a side, at a random place.")
    ] = None
    pad: Annotated[int, Meta(ge=0, description="Before that, add this many black pixels on each side.")] = 0

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of an image after it."""
        if len(shape) != 3:
            raise DataError(f"data.augment: expected images (channels, height, width), got inputs of shape {shape}")
        if self.crop is None:
            return shape
        if self.crop > min(shape[1:]) + 2 * self.pad:
            raise DataError(
                f"data.augment.crop: {self.crop} pixels cannot be cut out of {shape[1]}x{shape[2]} "
                f"with {self.pad} more on each side; lower it or raise data.augment.pad"
            )
        return (shape[0], self.crop, self.crop)

    def train(self, x: Tensor, draws: np.ndarray) -> Tensor:
        """Training images; `draws` are their rows of what `draw_augmentation` returns."""
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
        """Test images."""
        if self.crop is None:
            return x
        x = pad(x, [self.pad] * 4)
        top, left = ((size - self.crop) // 2 for size in x.shape[2:])
        return x[..., top : top + self.crop, left : left + self.crop]


def draw_augmentation(num_samples: int, seed: int, round: int) -> np.ndarray:
    """Return three numbers from 0 to 1 for each sample of the data set: flipped or not, place of the crop."""
    return generator(seed, "augment", round=round).random((num_samples, 3))
