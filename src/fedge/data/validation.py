"""The validation split: samples that each client holds out of its training data."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import Annotated

import numpy as np
from msgspec import Meta

from fedge.core.errors import DataError
from fedge.core.keys import generator

ValidationShare = Annotated[
    Annotated[float, Meta(gt=0, lt=1)] | None,
    Meta(
        description="Share of its training samples that each client holds out: rounded down, but at least 1 if it has "
        "2 or more. Clients never train on them; halving, step schedules and target.patience use them."
    ),
]


def count_held_out(num_samples: int, share: float) -> int:
    """Return the number of samples that a client holds out; it always keeps one for training."""
    return min(max(1, floor(share * num_samples + 1e-9)), num_samples - 1) if num_samples > 1 else 0


def choose_held_out(num_samples: int, share: float, seed: int, client: int) -> np.ndarray:
    """Return a mask of the samples that a client holds out."""
    held_out = np.zeros(num_samples, bool)
    count = count_held_out(num_samples, share)
    held_out[generator(seed, "validation", client).permutation(num_samples)[:count]] = True
    return held_out


def check_held_out(sizes: Sequence[int]) -> None:
    """Raise a DataError if no client holds out a sample."""
    if not any(sizes):
        raise DataError(
            "data.validation: expected a client with at least 2 training samples, got none; "
            "remove data.validation, or lower data.clients"
        )
