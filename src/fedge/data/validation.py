"""The validation split: samples that each client holds out of its own training data."""

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
        description="Share of each client's own training samples that it holds out: rounded down, at least 1 of 2 or "
        "more. They are never trained on; halving, step schedules and target.patience look at them."
    ),
]


def count_held_out(num_samples: int, share: float) -> int:
    """Return how many of a client's samples are held out; it always keeps one to train on."""
    return min(max(1, floor(share * num_samples + 1e-9)), num_samples - 1) if num_samples > 1 else 0


def choose_held_out(num_samples: int, share: float, seed: int, client: int) -> np.ndarray:
    """Return which of a client's samples are held out, as truth values."""
    held_out = np.zeros(num_samples, bool)
    count = count_held_out(num_samples, share)
    held_out[generator(seed, "validation", client).permutation(num_samples)[:count]] = True
    return held_out


def check_held_out(sizes: Sequence[int]) -> None:
    """Raise a DataError if no client holds out a sample."""
    if not any(sizes):
        raise DataError(
            "data.validation: expected a client with at least 2 training samples, got none; "
            "leave data.validation out, or have fewer clients"
        )
