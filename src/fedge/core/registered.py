"""What a server knows about its clients: the amount of data of each, never a sample."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol, Self

import numpy as np

Task = Literal["classes", "labels", "values"]
"""What the model predicts: one of several classes, any number of labels (each 0 or 1), or values."""


class Registered(Protocol):
    """The facts that clients register; shape, outputs and task are the same for all clients."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""

    @property
    def num_outputs(self) -> int:
        """Classes, labels, or values to predict."""

    @property
    def task(self) -> Task: ...

    @property
    def sizes(self) -> np.ndarray:
        """Number of training samples of each client: the maximum over the run."""

    @property
    def noisy(self) -> np.ndarray:
        """Ids of the clients whose training data is noisy on purpose."""


class RegisteredClients(NamedTuple):
    """The registered facts without the data, as held by a server."""

    shape: tuple[int, ...]
    num_outputs: int
    task: Task
    sizes: np.ndarray
    noisy: np.ndarray
    test_sizes: np.ndarray | None = None  # of each client's own test set; None: not registered
    validation_sizes: np.ndarray | None = None  # of each client's held-out validation samples

    @classmethod
    def of(cls, clients: Registered) -> Self:
        """Return the facts about clients whose data is available."""
        return cls(clients.shape, clients.num_outputs, clients.task, clients.sizes, clients.noisy)
