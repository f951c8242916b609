"""What the rest of the project sees of data: clients with samples."""

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
    """All clients' data. Samples are made or cut out when asked for, so that a million clients cost nothing.

    Data may change from round to round; rounds count from 1.
    """

    def num_samples(self, client: int, round: int) -> int:
        """Of its training set in a round: at least one, unless it never has any."""

    def train(self, client: int, round: int) -> Samples: ...
    def test(self, client: int, round: int) -> Samples:
        """The client's own test set; it may be empty."""

    def validation(self, client: int, round: int) -> Samples:
        """The samples that the client holds out of its training data; none without a validation split."""

    def pooled_test(self) -> Samples:
        """What the global model is tested on: the same in every round."""


class ServerPart(NamedTuple):
    """What a server has of a data set whose training samples are elsewhere."""

    plan: DataPlan  # what it tells its clients
    test: Samples | None  # what the global model is tested on, as `pooled_test`; None: no sample
    num_clients: int | None  # into which the data set is divided; None: as many as will join

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
        """Return the same with inputs that are normalised: the test set's, and by the plan those of clients."""
        normaliser = scaling.normaliser(self.shape)
        test = Samples(normaliser(self.test.x), self.test.y) if self.test else None
        return self._replace(plan=replace(self.plan, scaling=scaling, sums=False), test=test)
