"""What the rest of the project sees of data: clients with samples."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor


class Samples(NamedTuple):
    """Inputs `[n, ...]` and targets `[n]` (class numbers) or `[n, k]` (values)."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)


class Clients(Protocol):
    """All clients' data. Samples are made or cut out when asked for, so that a million clients cost nothing."""

    shape: tuple[int, ...]  # of one input
    num_outputs: int  # classes, or values to predict
    regression: bool  # targets are values, not classes
    sizes: np.ndarray  # training samples of each client

    def train(self, client: int) -> Samples: ...
    def test(self, client: int) -> Samples:
        """The client's own test set; it may be empty."""

    def pooled_test(self) -> Samples: ...
