"""Drift: data that changes from round to round.

Rounds count from 1. A drift begins in round 1 and is complete in round `until`; after that, the data stays the same. A
client's data depends only on the seed, the client and the round, and is computed on request.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, radians, sin
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from fedge.core.errors import DataError
from fedge.core.keys import generator
from fedge.core.registered import Task
from fedge.core.schema import Options
from fedge.data.apportionment import choose_clients, nearest_whole

Hands = Sequence[np.ndarray]
"""The samples of each client, as rows of the training or the test set."""


class Steady(Options):
    """Data that does not change; kinds of drift override some of these methods."""

    def check(self, task: Task, shape: tuple[int, ...], words: bool, num_clients: int) -> None:
        """Raise a DataError if such data cannot have this drift."""

    def draw(self, num_clients: int, seed: int) -> np.ndarray:
        """Return client numbers that are drawn once per run; the methods below receive them as `drawn`."""
        return np.zeros(0, np.int64)

    def num_samples(self, size: int, round: int) -> int:
        """Return the number of training samples in a round, for a client of this size."""
        return size

    def train(self, hands: Hands, client: int, round: int, seed: int, drawn: np.ndarray) -> np.ndarray:
        """Return a client's rows of the training set."""
        return hands[client]

    def test(self, hands: Hands, client: int, round: int, seed: int, drawn: np.ndarray) -> np.ndarray:
        """Return a client's rows of the test set."""
        return hands[client]

    def inputs(self, x: Tensor, client: int, round: int, seed: int, drawn: np.ndarray) -> Tensor:
        """Return a client's inputs after the drift, for training or for the test."""
        return x


class Drift(Steady):
    """Data that changes linearly from round 1 to round `until`."""

    until: Annotated[int, Meta(ge=2, description="Round in which the change is complete; it begins in round 1.")]

    def progress(self, round: int) -> float:
        """Return the progress of the drift: 0 in round 1, 1 in round `until` and later."""
        return min(max((round - 1) / (self.until - 1), 0.0), 1.0)


class Arriving(Drift, tag="arriving"):
    """Arriving training samples: a client starts with some of them, and gets the others at a constant rate.

    Each client has its own random order. The training set of a round is a prefix of that of every later round.
    """

    start: Annotated[
        float, Meta(ge=0, le=1, description="Share of a client's samples that it has in round 1; at least one sample.")
    ]

    def num_samples(self, size: int, round: int) -> int:
        first = min(size, max(1, nearest_whole(self.start * size)))
        return first + nearest_whole(self.progress(round) * (size - first))

    def train(self, hands: Hands, client: int, round: int, seed: int, drawn: np.ndarray) -> np.ndarray:
        rows = hands[client]
        order = generator(seed, "arrival", client).permutation(len(rows))
        return rows[order[: self.num_samples(len(rows), round)]]


class LabelShift(Drift, tag="label_shift"):
    """Label shift: a client's class proportions move towards those of another client, its partner.

    Partners are neighbours in a random cycle through all clients. Random samples of the partner replace a growing
    share of a client's n samples: none in round 1, `strength` * n in round `until`, at positions drawn once; a replaced
    sample stays replaced. If the partner has fewer samples, they are used several times. Training sets and the clients'
    test sets shift in the same way and keep their sizes. The common test set does not shift, nor does the test set of a
    client whose partner has none. Clients with equal class proportions, as with `iid`, keep them.
    """

    strength: Annotated[
        float, Meta(gt=0, le=1, description="Final share of a client's samples that come from its partner.")
    ] = 1.0

    def check(self, task: Task, shape: tuple[int, ...], words: bool, num_clients: int) -> None:
        if task == "values":
            raise DataError(
                "data.drift: label_shift changes class proportions, but the targets of this data set are values; "
                "choose arriving or feature_shift"
            )
        if num_clients < 2:
            raise DataError("data.drift: label_shift expects at least 2 clients, got 1; raise data.clients")

    def draw(self, num_clients: int, seed: int) -> np.ndarray:
        """Return each client's partner: its successor in a random cycle through all of them."""
        order = generator(seed, "label shift").permutation(num_clients)
        partners = np.empty_like(order)
        partners[order] = np.roll(order, -1)
        return partners

    def train(self, hands: Hands, client: int, round: int, seed: int, drawn: np.ndarray) -> np.ndarray:
        return self._mix(hands[client], hands[drawn[client]], round, generator(seed, "label shift train", client))

    def test(self, hands: Hands, client: int, round: int, seed: int, drawn: np.ndarray) -> np.ndarray:
        return self._mix(hands[client], hands[drawn[client]], round, generator(seed, "label shift test", client))

    def _mix(self, own: np.ndarray, others: np.ndarray, round: int, rng: np.random.Generator) -> np.ndarray:
        places, lent = rng.permutation(len(own)), np.resize(rng.permutation(others), len(own))
        count = nearest_whole(self.strength * self.progress(round) * len(own)) if len(others) else 0
        mixed = own.copy()
        mixed[places[:count]] = lent[:count]
        return mixed


class FeatureShift(Drift, tag="feature_shift"):
    """Feature shift: the inputs of some clients change, in their training and test sets; the common test set does not.

    Images are rotated counter-clockwise about their centre by an angle that grows linearly from 0 in round 1 to
    `degrees`; pixels from outside are black. An offset is added to numbers of any kind, which grows from 0 to `std`
    times a standard normal number, drawn for each client and each feature (or channel of images).
    """

    fraction: Annotated[float, Meta(ge=0, le=1, description="Share of the clients whose inputs shift.")] = 1.0
    degrees: Annotated[float, Meta(ge=-360, le=360, description="Final angle by which images are rotated.")] = 0.0
    std: Annotated[
        float,
        Meta(
            ge=0,
            le=1e6,
            description="Final standard deviation of the offset, in units of the inputs before normalisation.",
        ),
    ] = 0.0

    def __post_init__(self) -> None:
        if not (self.degrees or self.std):
            raise ValueError("expected degrees, std or both, got neither")

    def check(self, task: Task, shape: tuple[int, ...], words: bool, num_clients: int) -> None:
        if words:
            raise DataError(
                "data.drift: feature_shift changes numbers, but the inputs of this data set are words or characters; "
                "choose arriving or label_shift"
            )
        if self.degrees and len(shape) != 3:
            raise DataError(
                f"data.drift.degrees: expected images (channels, height, width), got inputs of shape {shape}; "
                "give data.drift.std instead"
            )

    def draw(self, num_clients: int, seed: int) -> np.ndarray:
        """Return the clients whose inputs shift."""
        return choose_clients(num_clients, self.fraction, generator(seed, "shifting clients"))

    def inputs(self, x: Tensor, client: int, round: int, seed: int, drawn: np.ndarray) -> Tensor:
        progress = self.progress(round)
        if not progress or client not in drawn:
            return x
        if self.degrees:
            x = rotate(x, progress * self.degrees)
        if self.std:
            drawn = generator(seed, "feature shift", client).standard_normal(x.shape[1], dtype=np.float32)
            x = x + progress * self.std * torch.from_numpy(drawn).view(-1, *[1] * (x.dim() - 2))
        return x


DriftOptions = Arriving | LabelShift | FeatureShift


def rotate(x: Tensor, degrees: float) -> Tensor:
    """Return images rotated counter-clockwise about their centre, with bilinear interpolation; outside pixels are 0."""
    height, width = x.shape[2:]
    c, s = cos(radians(degrees)), sin(radians(degrees))
    # The source position of a pixel, in coordinates from -1 to 1 along either side, downwards along the height.
    source = torch.tensor([[[c, -s * height / width, 0], [s * width / height, c, 0]]], dtype=x.dtype)
    grid = affine_grid(source, [1, *x.shape[1:]], align_corners=False)
    return grid_sample(x, grid.expand(len(x), -1, -1, -1), align_corners=False)
