"""The epochs of a period in which clients talk (communicate), for dynamic averaging by SVD and by loss."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Tensor

Rule = Annotated[
    Literal["spaced", "document"],
    Meta(
        description="spaced: E_k evenly spaced communications, and the mean is sent to the clients that communicate. "
        "document: as in Reddy 2020, every ceil(E/E_k) epochs after the last one, and the mean is sent to all clients"
    ),
]


def epoch_of(round: int, last: Tensor, epochs: int) -> tuple[int, Tensor]:
    """Return t, the 1-based epoch of a round in its period, and the epoch of each client's last talk in it, or 0."""
    t = (round - 1) % epochs + 1
    return t, (last - (round - t)).clamp(min=0)


def share_out(q: Tensor, known: Tensor, epochs: int) -> Tensor:
    """Return E_k = ceil(q'*E), at least 1, where q' is q min-max normalised; E if all are equal or q is unknown."""
    found = torch.full(q.shape, epochs)
    values = q[known].double()
    if len(values) and (span := values.max() - values.min()) > 0:
        # Multiplied first: 0.07*100 is more than 7, and would be rounded up to 8.
        found[known] = ((values - values.min()) * epochs / span).ceil().clamp(min=1).long()
    return found


def due_by_document(t: int, since: Tensor, talks: Tensor, epochs: int) -> Tensor:
    """Return which clients talk in epoch t: in their first epoch, every rho_k after their last talk, and at the end.

    rho_k = ceil(E/E_k) (Reddy 2020, equation 3.10); the epochs at the end are those of equation 3.11, if rho_k does
    not divide E.
    """
    talks = talks.clamp(min=1)
    rho = -(-epochs // talks)
    return (since == 0) | (t - since >= rho) | (t > epochs - (talks - epochs // rho))
