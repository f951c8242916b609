"""Preparation of the samples of a whole data set, equally on server and clients: scale, crop and normalise."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedge.data.augment import Augment
from fedge.data.clients import Samples
from fedge.data.normalise import Normaliser, Scaling, combine, moments_of, normaliser_of
from fedge.data.whole import SamplePool, Whole, chunks


class Preparation:
    """Scales, crops and normalises the samples of one data set."""

    def __init__(self, whole: Whole, augment: Augment | None, normalise: bool | Scaling) -> None:
        self._whole, self._augment = whole, augment
        shape = tuple(whole.train.x.shape[1:])
        self.shape: tuple[int, ...] = augment.shape(shape) if augment else shape
        self.normaliser: Normaliser | None = None
        if isinstance(normalise, Scaling):
            self.normaliser = normalise.normaliser(self.shape)
        elif normalise:
            sums = combine(moments_of(self._scale(part)) for part in chunks(whole.train.x))
            self.normaliser = normaliser_of(sums, self.shape)

    def cut(self, pool: SamplePool, rows: np.ndarray) -> Samples:
        """Return the samples in these rows, scaled."""
        chosen = torch.from_numpy(rows)
        # index_select copies whole rows, indexing copies element by element
        x = pool.x.index_select(0, chosen) if isinstance(pool.x, Tensor) else pool.x[chosen]
        return Samples(self._scale(x), pool.y[chosen])

    def cut_unaugmented(self, pool: SamplePool, rows: np.ndarray) -> Samples:
        """Return samples for tests: cropped to the size that augmentation produces, and otherwise unchanged."""
        x, y = self.cut(pool, rows)
        return Samples(self._augment.test(x) if self._augment else x, y)

    def normalised(self, x: Tensor) -> Tensor:
        return self.normaliser(x) if self.normaliser else x

    def pooled_test(self) -> Samples:
        """Return the whole test set."""
        x, y = self.cut_unaugmented(self._whole.test, np.arange(len(self._whole.test.y)))
        return Samples(self.normalised(x), y)

    def extremes(self) -> tuple[float, float]:
        """Return minimum and maximum of the training inputs."""
        parts = [self._scale(part).aminmax() for part in chunks(self._whole.train.x)]
        return min(float(part.min) for part in parts), max(float(part.max) for part in parts)

    def _scale(self, x: Tensor) -> Tensor:
        if self._whole.words:
            return x.to(torch.int64)
        if self._whole.full_scale == 1:
            return x.to(torch.float32)
        return x.to(torch.float32, copy=True).div_(self._whole.full_scale)
