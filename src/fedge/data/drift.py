"""Data that changes by round.

Rounds count from 1, where a drift begins; in round `until` it is complete, and stays so. What a client has depends on
the seed, the client and the round alone, and is worked out when it is asked for.
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
    """Data that does not change; a drift is other than this in some respect."""

    def check(self, task: Task, shape: tuple[int, ...], words: bool, num_clients: int) -> None:
        """A DataError if such data cannot change like this."""

    def draw(self, num_clients: int, seed: int) -> np.ndarray:
        """Return client numbers that are drawn once for a run; the methods below are given them as `drawn`."""
        return np.zeros(0, np.int64)

    def num_samples(self, size: int, round: int) -> int:
        """How many training samples a client of this size has."""
        return size

    def train(self, hands: Hands, client: int, round: int, seed: int, drawn: np.ndarray) -> np.ndarray:
        """The rows of the training set that a client has."""
        return hands[client]

    def test(self, hands: Hands, client: int, round: int, seed: int, drawn: np.ndarray) -> np.ndarray:
        """The rows of the test set that a client has."""
        return hands[client]

    def inputs(self, x: Tensor, client: int, round: int, seed: int, drawn: np.ndarray) -> Tensor:
        """What has become of a client's inputs, for training or for the test."""
        return x


class Drift(Steady):
    """Data that changes evenly from round 1 to round `until`."""

    until: Annotated[int, Meta(ge=2, description="The round in which the change is complete; it begins in round 1.")]

    def progress(self, round: int) -> float:
        """From 0 in round 1 to 1 in round `until`."""
        return min(max((round - 1) / (self.until - 1), 0.0), 1.0)


class Arriving(Drift, tag="arriving"):
    """Training samples that arrive: a client starts with some, and gets the others evenly until round `until`.

    They come in a random order of the client's own. What is there stays, in its place: the training set of a round is
    the beginning of that of every later round.
    """

    start: Annotated[
        float, Meta(ge=0, le=1, description="Share of its samples that a client has in round 1; at least one.")
    ]

    def num_samples(self, size: int, round: int) -> int:
        first = min(size, max(1, nearest_whole(self.start * size)))
        return first + nearest_whole(self.progress(round) * (size - first))

    def train(self, hands: Hands, client: int, round: int, seed: int, drawn: np.ndarray) -> np.ndarray:
        rows = hands[client]
        order = generator(seed, "arrival", client).permutation(len(rows))
        return rows[order[: self.num_samples(len(rows), round)]]


class LabelShift(Drift, tag="label_shift"):
    """Class proportions that move from a client's own towards those of another client, its partner.

    A random cycle through all clients makes each the partner of another. Of the n samples of a client, `strength` * n
    in round `until`, and a share that grows evenly from none in round 1 before that, are replaced by random ones of
    its partner, in places drawn once; what is replaced stays so. A partner with fewer samples lends them several
    times. Training sets and the clients' own test sets shift alike, in size they stay the same; the common test set
    does not shift, nor the own one of a client whose partner has none. Clients whose classes are alike, as with
    `iid`, stay alike.
    """

    strength: Annotated[
        float, Meta(gt=0, le=1, description="Share of its samples that a client has from its partner in the end.")
    ] = 1.0

    def check(self, task: Task, shape: tuple[int, ...], words: bool, num_clients: int) -> None:
        if task == "values":
            raise DataError(
                "data.drift: label_shift moves proportions of classes, but the targets here are values; "
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
    """Inputs of some clients that change, for training and in their own test sets; the common test set does not.

    Images are turned by an angle that grows evenly from 0 in round 1 to `degrees`, about their centre and
    counter-clockwise; what comes from outside is black. To all kinds of numbers an offset is added that grows from 0
    to `std` times a standard normal number, drawn for each client and each feature, or channel of images.
    """

    fraction: Annotated[float, Meta(ge=0, le=1, description="Share of the clients whose inputs shift.")] = 1.0
    degrees: Annotated[float, Meta(ge=-360, le=360, description="Angle that images are turned by in the end.")] = 0.0
    std: Annotated[
        float,
        Meta(
            ge=0,
            le=1e6,
            description="Deviation of the offset in the end, in units of the inputs before they are normalised.",
        ),
    ] = 0.0

    def __post_init__(self) -> None:
        if not (self.degrees or self.std):
            raise ValueError("expected degrees or std, by which inputs shift, got neither; give one of them or both")

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
    """Images turned counter-clockwise about their centre, bilinear; what comes from outside is zero."""
    height, width = x.shape[2:]
    c, s = cos(radians(degrees)), sin(radians(degrees))
    # Where a pixel comes from, in coordinates that run from -1 to 1 over either side, downwards over the height.
    source = torch.tensor([[[c, -s * height / width, 0], [s * width / height, c, 0]]], dtype=x.dtype)
    grid = affine_grid(source, [1, *x.shape[1:]], align_corners=False)
    return grid_sample(x, grid.expand(len(x), -1, -1, -1), align_corners=False)
