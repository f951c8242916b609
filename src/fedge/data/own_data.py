"""The data of one client, under its number in a run."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from msgspec.structs import replace

from fedge.core.errors import DataError
from fedge.core.layout import Tree
from fedge.core.registered import Task
from fedge.data.clients import Clients, Samples
from fedge.data.data_plan import DataPlan
from fedge.data.fitting import Fitting
from fedge.data.normalise import Scaling, moments_of

MAX_CLIENTS = 10_000_000


class OwnFacts(NamedTuple):
    """What a client registers about its data."""

    shape: tuple[int, ...]
    num_outputs: int
    task: Task
    size: int  # largest number of training samples over all rounds
    test_size: int
    validation_size: int
    noisy: bool


class FixedClient(NamedTuple):
    """`Clients` with a single client, number 0, whose samples never change."""

    shape: tuple[int, ...]
    num_outputs: int
    task: Task
    samples: tuple[Samples, Samples, Samples]  # training, test, validation
    is_noisy: bool = False

    @property
    def sizes(self) -> np.ndarray:
        return np.array([len(self.samples[0])])

    @property
    def noisy(self) -> np.ndarray:
        return np.arange(int(self.is_noisy))

    def num_samples(self, client: int, round: int) -> int:
        return len(self.samples[0])

    def train(self, client: int, round: int) -> Samples:
        return self.samples[0]

    def test(self, client: int, round: int) -> Samples:
        return self.samples[1]

    def validation(self, client: int, round: int) -> Samples:
        return self.samples[2]

    def pooled_test(self) -> Samples:
        return self.samples[1]


class OwnData:
    """`Clients` in which only client `number` has data, that of client `place` of `source`; others raise."""

    def __init__(
        self, number: int, source: Clients, place: int, plan: DataPlan, fitting: Fitting, normalise: bool = True
    ) -> None:
        if not 0 <= number < MAX_CLIENTS:
            raise DataError(f"a client's number must be from 0 to {MAX_CLIENTS - 1}, got {number}")
        self.number, self._source, self._place, self._plan, self._fitting = number, source, place, plan, fitting
        scaling = plan.scaling if normalise else None
        self._normaliser = scaling.normaliser(plan.shape) if scaling else None
        self.shape, self.num_outputs, self.task = plan.shape, plan.num_outputs, plan.task
        self.sizes = np.zeros(number + 1, np.int64)
        self.sizes[number] = source.sizes[place]
        self.noisy = np.array([number] if place in source.noisy else [], int)

    @property
    def facts(self) -> OwnFacts:
        """What the client registers; it includes no samples."""
        return OwnFacts(
            self.shape,
            self.num_outputs,
            self.task,
            size=int(self.sizes[self.number]),
            test_size=len(self._source.test(self._place, 1)),
            validation_size=len(self._source.validation(self._place, 1)),
            noisy=bool(len(self.noisy)),
        )

    def num_samples(self, client: int, round: int) -> int:
        return self._source.num_samples(self._checked(client), round)

    def train(self, client: int, round: int) -> Samples:
        return self._treated(self._source.train(self._checked(client), round))

    def test(self, client: int, round: int) -> Samples:
        return self._treated(self._source.test(self._checked(client), round))

    def validation(self, client: int, round: int) -> Samples:
        return self._treated(self._source.validation(self._checked(client), round))

    def pooled_test(self) -> Samples:
        """Return the client's test set, the only one it has."""
        return self.test(self.number, 1)

    def moments(self) -> Tree:
        """Return count, sum and sum of squares of the training inputs in round 1, to send to the server."""
        return moments_of(self.train(self.number, 1).x)

    def scaled(self, scaling: Scaling) -> Self:
        """Return the same data, normalised with this scaling."""
        plan = replace(self._plan, scaling=scaling, sums=False)
        return type(self)(self.number, self._source, self._place, plan, self._fitting)

    def _checked(self, client: int) -> int:
        if client != self.number:
            raise DataError(f"expected client {self.number}, whose data this is, got client {client}")
        return self._place

    def _treated(self, samples: Samples) -> Samples:
        x, y = self._fitting(samples)
        return Samples(self._normaliser(x) if self._normaliser else x, y)
