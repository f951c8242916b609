"""Reducers, which combine the uploads of a cohort into one.

A reducer is created for one exchange from the algorithm's slots, receives each decoded upload in client order, and
returns the result. The mean is a running mean in float64, a += (u - a) * w/W: unlike sum-then-divide it is exact for
one client, and it needs no more memory than one upload. It also accepts the uploads of several clients at once, and
can be merged with another mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from fedge.core.layout import Tree
from fedge.core.slots import Slot

_PART = 1 << 18  # values of a vector reduced at a time
_HELD = 1 << 22  # values of all clients held at a time, for reducers that need all uploads
_STEP = 1 << 10  # parts whose width is a multiple of this are summed by torch exactly as in the whole vector


class Reducer(Protocol):
    def add(self, upload: Tree, samples: float) -> None:
        """Add one client's upload; an upload with zero samples is ignored."""

    def value(self) -> Tree:
        """Return the reduced upload in the uploads' dtype; empty if nothing was added."""


class Partial(NamedTuple):
    """A partial mean, which can be merged with others."""

    means: Tree  # in float64
    dtypes: Mapping[str, torch.dtype]  # of the uploads
    samples: float = 0.0
    num_uploads: int = 0


class Mean:
    """The mean, with the weighting that each slot declares."""

    def __init__(self, slots: Mapping[str, Slot]) -> None:
        self._slots = slots
        self.partial = Partial({}, {})

    def add(self, upload: Tree, samples: float) -> None:
        self.add_rows({name: value.unsqueeze(0) for name, value in upload.items()}, [samples])

    def add_rows(self, rows: Tree, samples: Sequence[float]) -> None:
        """Add several uploads, one after another."""
        counted = [i for i, weight in enumerate(samples) if weight > 0]
        if not counted:
            return
        if not self.partial.num_uploads:
            means = {name: value.new_empty(value.shape[1:], dtype=torch.float64) for name, value in rows.items()}
            self.partial = Partial(means, {name: value.dtype for name, value in rows.items()})
        totals = self.partial.samples + np.cumsum([samples[i] for i in counted])
        counts = self.partial.num_uploads + np.arange(1, len(counted) + 1)
        shares = {"samples": np.array([samples[i] for i in counted]) / totals, "uniform": 1 / counts}
        for name, mean in self.partial.means.items():
            _run_mean(mean, rows[name], counted, shares[self._slots[name].weight].tolist())
        self.partial = self.partial._replace(samples=float(totals[-1]), num_uploads=int(counts[-1]))

    def merge(self, other: Partial) -> None:
        """Add the uploads of another mean after these."""
        if not other.num_uploads:
            return
        if not self.partial.num_uploads:
            self.partial = other._replace(means={name: mean.clone() for name, mean in other.means.items()})
            return
        samples, count = self.partial.samples + other.samples, self.partial.num_uploads + other.num_uploads
        shares = {"samples": other.samples / samples, "uniform": other.num_uploads / count}
        for name, mean in self.partial.means.items():
            _run_mean(mean, other.means[name].unsqueeze(0), [0], [shares[self._slots[name].weight]])
        self.partial = self.partial._replace(samples=samples, num_uploads=count)

    def value(self) -> Tree:
        return {name: mean.to(self.partial.dtypes[name]) for name, mean in self.partial.means.items()}


def _run_mean(mean: Tensor, rows: Tensor, which: Sequence[int], shares: Sequence[float]) -> None:
    """Apply a += (u - a) * share for the given rows u in turn, in parts that fit the cache. A share of 1 restarts."""
    room = None if rows.dtype == mean.dtype else mean.new_empty((*mean.shape[:-1], min(_PART, mean.shape[-1])))
    for start in range(0, mean.shape[-1], _PART):
        a = mean[..., start : start + _PART]
        for i, share in zip(which, shares, strict=True):
            u = rows[i, ..., start : start + _PART]
            if share == 1.0:
                a.copy_(u)
            else:
                a.lerp_(u if room is None else room[..., : a.shape[-1]].copy_(u), share)


class Collect:
    """Stacks all uploads as rows in client order."""

    def __init__(self, slots: Mapping[str, Slot]) -> None:
        self._slots = slots
        self._uploads: list[Tree] = []

    def add(self, upload: Tree, samples: float) -> None:
        if samples > 0:
            self._uploads.append(upload)

    def value(self) -> Tree:
        if not self._uploads:
            return {}
        return {name: torch.stack([upload[name] for upload in self._uploads]) for name in self._uploads[0]}

    def _slices(self, name: str) -> Iterator[tuple[slice, Tensor]]:
        """Yield one vector of all uploads in parts: the slice, and the part of each upload as a row.

        Uploads may be memory-mapped files: then only one part of them is in memory at a time.
        """
        length = self._uploads[0][name].shape[-1]
        width = max(1, _HELD // len(self._uploads) // _STEP) * _STEP
        for start in range(0, length, width):
            part = slice(start, min(start + width, length))
            yield part, torch.stack([upload[name][..., part] for upload in self._uploads])


class _PerCoordinate(Collect):
    """A coordinate-wise statistic that weights all clients equally."""

    def value(self) -> Tree:
        found = {name: torch.empty_like(value) for name, value in self._uploads[0].items()} if self._uploads else {}
        for name, value in found.items():
            for part, rows in self._slices(name):
                value[..., part] = self.statistic(rows)
        return found

    def statistic(self, rows: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} must define statistic")


class Median(_PerCoordinate):
    """The coordinate-wise median; for an even number of clients, the mean of the middle two."""

    def statistic(self, rows: Tensor) -> Tensor:
        ordered = rows.sort(0).values
        middle = len(rows) // 2
        return ordered[middle] if len(rows) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


class TrimmedMean(_PerCoordinate):
    """The coordinate-wise mean without the largest and the smallest values, a `fraction` of each."""

    def __init__(self, slots: Mapping[str, Slot], fraction: float = 0.1) -> None:
        super().__init__(slots)
        self._fraction = fraction

    def statistic(self, rows: Tensor) -> Tensor:
        cut = int(len(rows) * self._fraction + 1e-9)
        kept = rows.sort(0).values[cut : len(rows) - cut]
        return kept.to(torch.float64).mean(0).to(rows.dtype)


class Krum(Collect):
    """The mean of the `keep` uploads closest to their nearest neighbours (Blanchard et al. 2017).

    Of n clients, f = int(n * fraction) may be hostile. An upload's score is the sum of its squared distances to the
    n - f - 2 nearest others, over all its parameters.
    """

    def __init__(self, slots: Mapping[str, Slot], fraction: float = 0.1, keep: int = 1) -> None:
        super().__init__(slots)
        self._fraction, self._keep = fraction, keep

    def value(self) -> Tree:
        if not self._uploads:
            return {}
        chosen = [self._uploads[i] for i in self._chosen().tolist()]
        return {
            name: average(torch.stack([upload[name] for upload in chosen]), [1.0] * len(chosen)) for name in chosen[0]
        }

    def _chosen(self) -> Tensor:
        names, count = list(self._uploads[0]), len(self._uploads)
        distances = torch.zeros(count, count, dtype=torch.float64)
        for name in [name for name in names if self._slots[name].kind == "params"] or names:
            for _, rows in self._slices(name):
                points = rows.to(torch.float64)
                # One row at a time, and not via the product of rows: its rounding errors would hide near neighbours.
                distances += torch.stack([(points - point).square().sum(-1) for point in points])
        num_near = max(1, count - int(count * self._fraction + 1e-9) - 2)
        scores = distances.sort(-1).values[:, 1 : 1 + num_near].sum(-1)  # the nearest is the upload itself
        return scores.sort(stable=True).indices[: self._keep].sort().values


def average(rows: Tensor, weights: Sequence[float]) -> Tensor:
    """Return the weighted mean of rows, computed like `Mean`."""
    mean = rows[0].to(torch.float64, copy=True)
    counted = [i for i, weight in enumerate(weights) if weight > 0]
    weighed = np.array([weights[i] for i in counted])
    _run_mean(mean, rows, counted, (weighed / np.cumsum(weighed)).tolist())
    return mean.to(rows.dtype)


Reduce = Callable[[Mapping[str, Slot]], Reducer]
