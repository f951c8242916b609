"""The effective rank of data, from its singular values."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedge.core.errors import ConfigError
from fedge.core.keys import generator

Method = Literal["full", "truncated", "randomised"]

_MAX_ITERATIONS = {"truncated": 100, "randomised": 2}
_SETTLED = 1e-6  # relative change between iterations below which values count as converged


def find_q(inputs: Tensor, share: float, squared: bool, method: Method, rank: int, oversampling: int) -> int:
    """Return the 0-based index at which the singular values, or their squares, reach a share of their total.

    Data has one row per sample and is not centred. If only the largest values are known, the sum of all squares is
    still known: it is that of all entries. It bounds the sum of the other values, which is largest if they are equal,
    so q of plain sums is never too small. Raises ConfigError if the known values do not reach the share.
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
            f"{float(sums[-1] / total):.1%} of the total, expected algorithm.energy_share = {share:.1%}; "
            'raise it, or set algorithm.method = "full"'
        )
    return int(reached.int().argmax())  # the first index reached


def singular_values(data: Tensor, method: Method, rank: int, oversampling: int) -> Tensor:
    """Return all singular values in descending order, or only the largest ones if that is less work.

    The largest are found by subspace iteration (Halko et al. 2011, algorithm 4.4): "randomised" iterates twice and
    slightly underestimates the values, "truncated" iterates until they converge.
    """
    num_columns = rank + oversampling
    values: Tensor
    if method == "full" or num_columns >= min(data.shape):
        values = torch.linalg.svdvals(data)
        return values
    # The same sketch for all clients is fine: it only has to be independent of the data.
    sketch = generator(0, "sketch").standard_normal((data.shape[1], num_columns))
    basis, before = torch.from_numpy(sketch).to(data), data.new_zeros(rank)
    for _ in range(_MAX_ITERATIONS[method]):
        basis = torch.linalg.qr(data.T @ (data @ basis)).Q
        values = torch.linalg.svdvals(data @ basis)[:rank]
        if method == "truncated" and ((values - before).abs() <= _SETTLED * values).all():
            break
        before = values
    return values
