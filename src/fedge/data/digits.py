"""The embedded data set: 1,797 handwritten digits (see DIGITS.md)."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta

from fedge.core.effect import NO_EFFECT
from fedge.data.divided_dataset import Divided
from fedge.data.whole import SamplePool, Whole


class Digits(Divided, tag="digits"):
    """1,797 handwritten digits in 10 classes, embedded; 8x8 enlarged to 1x28x28, values from 0 to 1."""

    dir: Annotated[str | None, Meta(description="Unused: the digits are embedded.", extra=NO_EFFECT)] = None

    def whole(self, train: bool = True) -> Whole:
        return _load()


def _load() -> Whole:
    with files("fedge.data").joinpath("digits.npz").open("rb") as file, np.load(file) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    # 8x8 pixels, each repeated 3x3, give 24x24; a margin of 2 gives 28x28, the input size of models for MNIST.
    x = torch.from_numpy(np.pad(images.repeat(3, 1).repeat(3, 2), ((0, 0), (2, 2), (2, 2)))[:, None])
    y = torch.from_numpy(labels.astype(np.int64))
    is_test = torch.arange(len(y)) % 5 == 4
    return Whole(
        SamplePool(x[~is_test], y[~is_test]), SamplePool(x[is_test], y[is_test]), num_outputs=10, full_scale=16
    )
