"""The minibatches of a client, as indexes of its samples for each step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedge.core.effort import steps_per_epoch

Indexes = np.ndarray
Steps = list[tuple[Indexes, ...]]
"""The batches of each step, as indexes into the client's samples."""


def plan(
    rng: np.random.Generator,
    num_samples: int,
    batch_size: int,
    *,
    num_steps: int | None,
    num_epochs: int | None,
    batches_per_step: int = 1,
    drop_single: bool = False,
) -> Steps:
    """Return the batches of one client's work in one round.

    With `num_steps`, batches come from concatenated permutations, so a batch may span two of them. With `num_epochs`,
    each epoch uses every sample once and ends with a short batch. A step that needs several batches takes consecutive
    ones in either case. `drop_single` is for models with BatchNorm: a last batch of one sample is dropped unless it is
    the only one.
    """
    size = min(batch_size, num_samples)
    if num_steps is None:
        if num_epochs is None:
            raise ValueError("either num_steps or num_epochs must be given")
        if batches_per_step == 1:
            epochs = (_epoch(rng.permutation(num_samples), size, drop_single) for _ in range(num_epochs))
            return [(batch,) for batches in epochs for batch in batches]
        num_steps = num_epochs * steps_per_epoch(num_samples, batch_size, drop_single)
    total = num_steps * batches_per_step * size
    orders = [rng.permutation(num_samples) for _ in range(-(-total // num_samples))]
    drawn = np.concatenate(orders or [np.empty(0, np.int64)])[:total]
    return [tuple(batches) for batches in drawn.reshape(num_steps, batches_per_step, size)]


def _epoch(order: Indexes, size: int, drop_single: bool) -> Iterator[Indexes]:
    for step in range(steps_per_epoch(len(order), size, drop_single)):
        yield order[step * size : (step + 1) * size]
