"""A client's effort, planned and actual: steps, batches and samples."""

from __future__ import annotations

from typing import NamedTuple

from fedge.core.algorithm import Info, Work
from fedge.core.rehearsal import Gradients


class Effort(NamedTuple):
    """A client's effort, counted while its work ran."""

    steps: int = 0
    batches: int = 0  # minibatch gradients
    grad_samples: int = 0  # samples passed through a gradient
    loss: float = float("nan")  # of the first gradient, if there was one


def steps_per_epoch(num_samples: int, batch_size: int, drop_single: bool = False) -> int:
    """Return ceil(n/B), without a last batch of one sample if models with BatchNorm drop it."""
    size = min(batch_size, num_samples)
    full, rest = divmod(num_samples, size)
    return full + (rest > 0 and not (drop_single and rest == 1))


def num_steps(work: Work, info: Info, num_samples: int, batch_size: int, drop_single: bool) -> int:
    """Return the number of steps that a client with `num_samples` samples takes."""
    if not work.trains:
        return 0
    given = info.num_steps if work.num_steps is None else work.num_steps
    if given is not None:
        return given
    return (info.num_epochs or 0) * steps_per_epoch(num_samples, batch_size, drop_single)


def num_batches(num_samples: int, size: int, batch_size: int) -> int:
    """Return the number of minibatches that a gradient over `num_samples` of a client's `size` samples counts as."""
    return -(-num_samples // min(batch_size, size))


def most_effort(work: Work, gradients: Gradients, info: Info, size: int, batch_size: int, drop_single: bool) -> Effort:
    """Return the effort of a client that uses all its `size` samples: the most that it can claim."""
    steps, batch = num_steps(work, info, size, batch_size, drop_single), min(batch_size, size)
    drawn = steps * batch
    if work.trains and work.batches_per_step == 1 and work.num_steps is None and info.num_steps is None:
        single = drop_single and size % batch == 1 and batch > 1
        drawn = (info.num_epochs or 0) * (size - single)  # every sample once per epoch: the last batch may be short
    full = gradients.full + gradients.step_full * steps
    batches = full * num_batches(size, size, batch_size) + gradients.step * steps
    return Effort(steps, batches, full * size + gradients.step * drawn)
