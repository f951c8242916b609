"""In which epochs of a period clients talk: what dynamic averaging by SVD and by loss share."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Tensor

Rule = Annotated[
    Literal["spaced", "document"],
    Meta(
        description="spaced: E_k evenly spaced talks, and the mean goes back to those who talk. "
        "document: as in Reddy 2020, every ceil(E/E_k) epochs from the last talk on, and the mean goes to all"
    ),
]


def epoch_of(round: int, last: Tensor, epochs: int) -> tuple[int, Tensor]:
    """Return t, the epoch of a round in its period, from 1 on, and that of each client's last talk in it, or 0."""
    t = (round - 1) % epochs + 1
    return t, (last - (round - t)).clamp(min=0)


def share_out(q: Tensor, known: Tensor, epochs: int) -> Tensor:
    """E_k = ceil(q'*E), at least 1, where q' is q min-max normalised; 1 if all are alike or q is not known yet."""
    found = torch.full(q.shape, epochs)
    values = q[known].double()
    if len(values) and (span := values.max() - values.min()) > 0:
        # Multiplied first: 0.07*100 is more than 7, and would be rounded up to 8.
        found[known] = ((values - values.min()) * epochs / span).ceil().clamp(min=1).long()
    return found


def due_by_document(t: int, since: Tensor, talks: Tensor, epochs: int) -> Tensor:
    """Return who talks in epoch t: in its first epoch, every rho_k from its last talk on, and in the last ones.

    rho_k = ceil(E/E_k) (Reddy 2020, equation 3.10); the last epochs are those that equation 3.11 adds where rho_k does
    not divide E.
    """
    talks = talks.clamp(min=1)
    rho = -(-epochs // talks)
    return (since == 0) | (t - since >= rho) | (t > epochs - (talks - epochs // rho))
