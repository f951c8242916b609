"""How many directions data has, told by its singular values."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedge.core.errors import ConfigError
from fedge.core.keys import generator

Method = Literal["full", "truncated", "randomised"]

_MAX_ITERATIONS = {"truncated": 100, "randomised": 2}
_SETTLED = 1e-6  # relative change of every value from one iteration to the next


def find_q(inputs: Tensor, share: float, squared: bool, method: Method, rank: int, oversampling: int) -> int:
    """The place, from 0 on, at which the singular values have added up to a share of all of them, or of their squares.

    Data is a row for each sample and is not centred. Where only the largest values are known, the sum of all squares
    still is: it is that of all numbers. Of the others' sum that tells the most it can be, if they are all alike, so
    that q of plain sums is never found too small.
    """
    data = inputs.reshape(len(inputs), -1).double()
    values = singular_values(data, method, rank, oversampling)
    sums = (values.square() if squared else values).cumsum(0)
    rest = (data.square().sum() - values.square().sum()).clamp(min=0)
    num_unseen = min(data.shape) - len(values)
    total = sums[-1]
    if num_unseen:
        total = total + (rest if squared else (num_unseen * rest).sqrt())
    reached = sums >= share * total
    if not reached[-1]:
        raise ConfigError(
            f"algorithm.rank: the {len(values)} largest singular values of a client's data may hold only "
            f"{float(sums[-1] / total):.1%} of the whole, expected algorithm.energy_share = {share:.1%}; "
            'raise it, or set algorithm.method = "full"'
        )
    return int(reached.int().argmax())  # the first of several


def singular_values(data: Tensor, method: Method, rank: int, oversampling: int) -> Tensor:
    """All singular values, falling; or the largest ones, if that is less work.

    Those are found by iterating on a random subspace (Halko et al. 2011, algorithm 4.4): "randomised" does so twice and
    finds values that are a little too small, "truncated" goes on until they no longer change.
    """
    num_columns = rank + oversampling
    values: Tensor
    if method == "full" or num_columns >= min(data.shape):
        values = torch.linalg.svdvals(data)
        return values
    # The same for all clients: what counts is that it does not know the data.
    sketch = generator(0, "sketch").standard_normal((data.shape[1], num_columns))
    basis, before = torch.from_numpy(sketch).to(data), data.new_zeros(rank)
    for _ in range(_MAX_ITERATIONS[method]):
        basis = torch.linalg.qr(data.T @ (data @ basis)).Q
        values = torch.linalg.svdvals(data @ basis)[:rank]
        if method == "truncated" and ((values - before).abs() <= _SETTLED * values).all():
            break
        before = values
    return values
