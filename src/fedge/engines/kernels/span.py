"""Training steps of a linear model without updating its weights.

The gradient of a linear model lies in the span of its samples. After any number of affine steps the weights are
therefore W = a*W0 + D + A'X, with X the client's samples, and the outputs X W' change by the Gram matrix X X' alone.
With few samples and many features this needs far less computation and memory traffic; the weights are computed once, at
the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedge.core.algorithm import Affine
from fedge.core.layout import Layout
from fedge.data.clients import Samples
from fedge.engines.kernels.losses import Loss

_CLIENTS = 8  # clients whose samples are processed together, so that they stay in the cache
_COLUMNS = 1024


class SpanKernel:
    """A block of linear models in training. Rows stop in reverse order, so the active ones are always the first."""

    def __init__(self, layout: Layout, loss: Loss, y: Tensor, samples: Sequence[Samples]) -> None:
        """`y`, `[C, P]`, has the initial weights; `finish` writes the trained ones to it."""
        self._layout, self._loss, self._samples = layout, loss, samples
        weight, *bias = (entry.name for entry in layout.params)
        views = layout.views(y)
        self._name, self._weights = weight, views[weight]
        self._bias_name = bias[0] if bias else ""
        self._bias: Tensor | None = views[bias[0]].unsqueeze(1) if bias else None
        self._longest = max(map(len, samples))
        self._targets = pad_sequence([each.y for each in samples], batch_first=True)
        self._x = [_pad([each.x.flatten(1) for each in samples[part]], self._longest) for part in self._parts()]
        self._gram = torch.cat([_inner_products(x) for x in self._x])[:, : self._longest, : self._longest]
        self._outputs = self._apply(self._weights)
        self._shares = torch.zeros_like(self._outputs)  # A: the coefficient of each sample in the weights
        self._decay = y.new_ones(len(y), 1, 1)  # a
        self._drift: Tensor | None = None  # D
        self._projected: tuple[Tensor, Tensor] | None = None  # the last drift, and its contribution to the outputs

    @staticmethod
    def pays(num_samples: int, num_seen: int, num_outputs: int) -> bool:
        """Return whether computing the Gram matrix is cheaper than the steps, which process `num_seen` samples."""
        return num_samples**2 <= 4 * num_seen * num_outputs

    def takes(self, affine: Affine) -> bool:
        """Return whether a step stays in the span, that is, scales each client's gradient by a single factor."""
        decay, _, scale = affine
        return all(not isinstance(part, Tensor) or part.shape[-1] == 1 for part in (decay, scale))

    def step(self, places: Tensor, shares: Tensor | None, affine: Affine) -> Tensor:
        """Take a step on the samples at these indices, `[C, B]`, and return the losses before it."""
        decay, scale = _column(affine[0]), _column(affine[2])
        num_rows = len(places)
        outputs, bias = self._outputs[:num_rows], None if self._bias is None else self._bias[:num_rows]
        index = places.unsqueeze(-1).expand(-1, -1, outputs.shape[-1])
        logits = outputs.gather(1, index)
        targets = self._targets[:num_rows].gather(1, places if self._targets.dim() == 2 else index)
        losses, g = self._loss(logits if bias is None else logits.add_(bias), targets, shares)
        moves = torch.zeros_like(outputs).scatter_add_(1, index, g).mul_(scale)
        outputs.mul_(decay).baddbmm_(self._gram[:num_rows], moves, alpha=-1)
        self._shares[:num_rows].mul_(decay).sub_(moves)
        self._decay[:num_rows].mul_(decay)
        if bias is not None:
            bias.mul_(decay).sub_(g.sum(1, keepdim=True) * scale)
        self._add_drift(affine[1], decay, num_rows)
        return losses

    def finish(self) -> None:
        """Write the trained weights to `y`."""
        self._weights.mul_(self._decay)
        for part, x in zip(self._parts(), self._x, strict=True):
            self._weights[part].baddbmm_(self._shares[part].transpose(1, 2), x[:, : self._longest])
        if self._drift is not None:
            self._weights.add_(self._layout.views(self._drift)[self._name])

    def _add_drift(self, drift: Tensor | None, decay: float | Tensor, num_rows: int) -> None:
        if self._drift is not None:
            self._drift[:num_rows].mul_(decay.squeeze(-1) if isinstance(decay, Tensor) else decay)
        if drift is None:
            return
        if self._drift is None:
            self._drift = self._decay.new_zeros(len(self._decay), self._layout.num_params)
        self._drift[:num_rows].add_(drift)
        self._outputs[:num_rows].add_(self._project(drift, num_rows))
        if self._bias is not None:
            part = self._layout.views(drift)[self._bias_name]
            self._bias[:num_rows].add_(part if part.dim() == 1 else part.unsqueeze(1))

    def _parts(self) -> list[slice]:
        return [slice(start, start + _CLIENTS) for start in range(0, len(self._samples), _CLIENTS)]

    def _apply(self, weights: Tensor) -> Tensor:
        """Return the outputs of weights `[C, outputs, features]` for the first clients' samples."""
        parts = zip(self._x, torch.split(weights, _CLIENTS), strict=False)
        return torch.cat([torch.bmm(x[: len(own), : self._longest], own.transpose(1, 2)) for x, own in parts])

    def _project(self, drift: Tensor, num_rows: int) -> Tensor:
        """Return the contribution of a drift to the outputs, cached because most algorithms reuse it in every step."""
        if self._projected is None or self._projected[0] is not drift:
            weights = self._layout.views(drift)[self._name].expand_as(self._weights[:num_rows])
            self._projected = drift, self._apply(weights)
        return self._projected[1][:num_rows]


def _pad(samples: Sequence[Tensor], longest: int) -> Tensor:
    """Return samples `[C, rows, features]`, zero-padded to a multiple of eight rows, for which MKL is faster."""
    num_rows, num_features = -(-longest // 8) * 8, samples[0].shape[1]
    zeros = samples[0].new_zeros(num_rows, num_features)
    return torch.cat([part for x in samples for part in (x, zeros[len(x) :])]).view(-1, num_rows, num_features)


def _inner_products(x: Tensor) -> Tensor:
    """Return the Gram matrix of each client's samples, summed over groups of columns, which is faster."""
    found = x.new_zeros(len(x), x.shape[1], x.shape[1])
    for part in torch.split(x, _COLUMNS, 2):
        found.baddbmm_(part, part.transpose(1, 2))
    return found


def _column(part: float | Tensor) -> float | Tensor:
    """Return one number per client as `[C, 1, 1]`; a scalar is returned unchanged."""
    return part.unsqueeze(-1) if isinstance(part, Tensor) else part
