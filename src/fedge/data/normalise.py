"""Normalisation of inputs to mean 0 and standard deviation 1, per channel of images or per feature of rows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from math import prod
from typing import Annotated, NamedTuple

import torch
from msgspec import Meta
from torch import Tensor

from fedge.core.errors import DataError
from fedge.core.layout import Tree
from fedge.core.schema import Options
from fedge.data.whole import Inputs, chunks

Deviation = Annotated[float, Meta(gt=0)]


class Scaling(Options, tag=False, kw_only=True):
    """Mean and standard deviation of inputs: one number, or one per channel of images or feature of rows."""

    mean: Annotated[float | list[float], Meta(description="Subtracted from inputs.")]
    std: Annotated[Deviation | list[Deviation], Meta(description="Divisor of the result; above 0.")]

    def normaliser(self, shape: tuple[int, ...]) -> Normaliser:
        """Return the normaliser for inputs of this shape; a DataError if the number of channels or features differs."""
        return Normaliser(_tensor(self.mean, shape, "mean"), _tensor(self.std, shape, "std"))


Normalise = Annotated[
    bool | Scaling,
    Meta(description="Normalise inputs to the training set's mean 0 and standard deviation 1, or by { mean, std }."),
]
"""An option of data sets."""


class Normaliser(NamedTuple):
    """Mean and standard deviation in float32, in a shape that broadcasts with inputs."""

    mean: Tensor
    std: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std

    def scaling(self) -> Scaling:
        """Return the same as options; float32 numbers survive the conversion to text."""
        return Scaling(mean=self.mean.flatten().tolist(), std=self.std.flatten().tolist())


def moments_of(x: Inputs) -> Tree:
    """Return count, sum and sum of squares of inputs in float64, per channel or feature; these can be added."""
    return combine(_moments(part) for part in chunks(x))


def combine(parts: Iterable[Tree]) -> Tree:
    """Return the sums over all parts, added in order."""
    return reduce(lambda a, b: {name: a[name] + b[name] for name in a}, parts)


def normaliser_of(moments: Tree, shape: tuple[int, ...]) -> Normaliser:
    """Return mean and standard deviation of inputs of this shape; constant features become zero."""
    mean = moments["sum"] / moments["count"]
    std = (moments["square"] / moments["count"] - mean * mean).clamp(min=0).sqrt()
    std = torch.where(std > 1e-6, std, 1.0)  # constant features become zero, not infinite
    return Normaliser(*(side.view(_broadcast(shape)).to(torch.float32) for side in (mean, std)))


def problem_of_moments(moments: Tree, shape: tuple[int, ...], num_samples: int) -> str | None:
    """Return why the sums of a client with `num_samples` samples are impossible; None if they are valid."""
    if set(moments) != {"count", "sum", "square"}:
        return f"expected count, sum and square, got {len(moments)} other entries"
    for name, value in moments.items():
        expected = () if name == "count" else shape[:1]
        if value.dtype != torch.float64 or value.shape != expected:
            return f"{name}: expected float64 of shape {list(expected)}, got {value.dtype} of {list(value.shape)}"
        if not value.isfinite().all():
            return f"{name}: expected finite numbers"
    count = num_samples * prod(shape[1:])
    if moments["count"] != count:
        return f"count: expected {count} by the samples registered, got {float(moments['count']):g}"
    if (
        moments["square"] * (1 + 1e-9) * count < moments["sum"].square()
    ).any():  # the mean of squares is at least the squared mean
        return "square: is smaller than the squared sum allows"
    return None


def _moments(x: Tensor) -> Tree:
    x = x.to(torch.float64)
    axes = [0, *range(2, x.dim())]
    count = x[:, 0].numel() if x.dim() > 2 else len(x)
    return {"count": torch.tensor(float(count), dtype=torch.float64), "sum": x.sum(axes), "square": (x * x).sum(axes)}


def _tensor(numbers: float | list[float], shape: tuple[int, ...], name: str) -> Tensor:
    if not isinstance(numbers, list):
        return torch.tensor(numbers, dtype=torch.float32)
    if len(numbers) != shape[0]:
        what = "channel" if len(shape) > 1 else "feature"
        raise DataError(
            f"data.normalise.{name}: expected one number, or {shape[0]} (one per {what}), got {len(numbers)}"
        )
    return torch.tensor(numbers, dtype=torch.float32).view(_broadcast(shape))


def _broadcast(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (-1,) + (1,) * (len(shape) - 1)
