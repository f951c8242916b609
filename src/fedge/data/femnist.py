"""FEMNIST: handwritten characters by writer, from LEAF's files."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import torch
from msgspec import Meta

from fedge.core.errors import DataError
from fedge.data.data_plan import Share
from fedge.data.divided_dataset import Divided
from fedge.data.files import Collection, Dir, data_dir
from fedge.data.leaf import Users, leaf_files, read_leaf
from fedge.data.partition import Natural, Partition
from fedge.data.whole import SamplePool, Whole

NUM_CLASSES = 62  # digits, upper and lower case letters


class Femnist(Divided, tag="femnist"):
    """Handwritten characters in 62 classes by about 3,500 writers, 1x28x28, values from 0 to 1; LEAF's JSON files."""

    sources: ClassVar[tuple[Collection, ...]] = (leaf_files("femnist"),)

    partition: Annotated[Partition, Meta(description="How samples are assigned to clients.")] = Natural()
    dir: Dir = None
    test_fraction: Annotated[
        Share,
        Meta(description="Share of a writer's last samples that is held out, if the files are not already split."),
    ] = 0.2

    def whole(self, train: bool = True) -> Whole:
        found = self.sources[0].find(data_dir(self.dir), "femnist")
        samples, test = read_leaf(found, self.test_fraction)
        return Whole(
            _pool(samples),
            _pool(test),
            num_outputs=NUM_CLASSES,
            full_scale=255,
            columns={"writer": (samples.users, test.users)},
        )


def _pool(samples: Users) -> SamplePool:
    """Return samples; LEAF's images are 784 numbers from 0 to 1, which are bytes divided by 255."""
    try:
        x = np.array(samples.x, np.float32).reshape(-1, 1, 28, 28)
        y = np.array(samples.y, np.int64).reshape(-1)
    except (ValueError, TypeError) as error:
        raise DataError(f"femnist: expected 784 numbers and a class for each image: {error}") from error
    if x.size and not (x.min() >= 0 and x.max() <= 1):
        raise DataError(f"femnist: expected pixels from 0 to 1, got values from {x.min()} to {x.max()}")
    if y.size and not (y.min() >= 0 and y.max() < NUM_CLASSES):
        raise DataError(f"femnist: expected classes from 0 to {NUM_CLASSES - 1}, got {y.min()} to {y.max()}")
    return SamplePool(torch.from_numpy(np.rint(x * 255).astype(np.uint8)), torch.from_numpy(y))
