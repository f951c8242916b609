"""A hint about inputs whose scale makes training slow or unstable."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

MAX_RATIO = 1000.0
"""Largest ratio of two columns' standard deviations; above it no step size suits both."""
MAX_RMS = 20.0
"""Largest root mean square of inputs; initial weights and common step sizes assume about 1."""
_NUM_ROWS = 1000  # rows to examine


def scale_hint(x: Tensor, features: Sequence[str] = ()) -> str | None:
    """Return a problem with the scale of inputs `[n, ...]` and its remedy; None if there is no problem."""
    if not x.is_floating_point():
        return None
    x = x[:_NUM_ROWS].to(torch.float64)
    if x.dim() == 2 and len(x) > 1:
        std = x.std(0, correction=0)
        varying = torch.nonzero(std > 1e-12 * (1 + x.abs().amax(0))).flatten()
        if len(varying) > 1:
            order = varying[std[varying].argsort()]
            least, most = (int(order[place]) for place in (0, -1))
            if std[most] > MAX_RATIO * std[least]:
                names = [repr(features[column]) if features else str(column) for column in (most, least)]
                return (
                    f"data: inputs have very different scales: column {names[0]} has standard deviation "
                    f"{float(std[most]):.3g}, column {names[1]} has {float(std[least]):.3g}; set data.normalise = true"
                )
    rms = float(x.square().mean().sqrt())
    if rms > MAX_RMS:
        return f"data: inputs are large (root mean square {rms:.3g}); set data.normalise = true"
    return None
