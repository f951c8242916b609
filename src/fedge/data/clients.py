"""The interface of data to the rest of the project: clients with samples."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from msgspec.structs import replace
from torch import Tensor

from fedge.core.registered import Registered, Task
from fedge.data.data_plan import DataPlan
from fedge.data.normalise import Scaling


class Samples(NamedTuple):
    """Inputs `[n, ...]` and targets: class numbers `[n]`, or `[n, k]` labels or values."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)


class Clients(Registered, Protocol):
    """The data of all clients. Samples are generated or selected on request, so that a million clients cost nothing.

    Data may change from round to round; rounds count from 1.
    """

    def num_samples(self, client: int, round: int) -> int:
        """Return the size of the training set in a round: at least 1, unless the client never has samples."""

    def train(self, client: int, round: int) -> Samples: ...
    def test(self, client: int, round: int) -> Samples:
        """Return the client's test set, which may be empty."""

    def validation(self, client: int, round: int) -> Samples:
        """Return the samples that the client holds out of its training data; none without a validation split."""

    def pooled_test(self) -> Samples:
        """Return the test set of the global model, which is the same in every round."""


class ServerPart(NamedTuple):
    """The server's part of a data set whose training samples are on clients."""

    plan: DataPlan  # sent to the clients
    test: Samples | None  # test set of the global model, as `pooled_test`; None: no samples
    num_clients: int | None  # clients over which the data set is divided; None: any number may join

    @property
    def shape(self) -> tuple[int, ...]:
        return self.plan.shape

    @property
    def num_outputs(self) -> int:
        return self.plan.num_outputs

    @property
    def task(self) -> Task:
        return self.plan.task

    def scaled(self, scaling: Scaling) -> ServerPart:
        """Return the same with normalised inputs: those of the test set and, through the plan, those of clients."""
        normaliser = scaling.normaliser(self.shape)
        test = Samples(normaliser(self.test.x), self.test.y) if self.test else None
        return self._replace(plan=replace(self.plan, scaling=scaling, sums=False), test=test)
