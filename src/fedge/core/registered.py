"""What a server knows of its clients: how much data each of them has, and never a sample."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol, Self

import numpy as np

Task = Literal["classes", "labels", "values"]
"""What there is to predict: one of several classes, any number of labels (each 0 or 1), or values."""


class Registered(Protocol):
    """The facts that clients register, all of them alike in shape, outputs and task."""

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
        """Training samples of each client, the most that it will ever have."""

    @property
    def noisy(self) -> np.ndarray:
        """Numbers of the clients whose training data is noisy on purpose."""


class RegisteredClients(NamedTuple):
    """The facts without the data: what a server holds."""

    shape: tuple[int, ...]
    num_outputs: int
    task: Task
    sizes: np.ndarray
    noisy: np.ndarray
    test_sizes: np.ndarray | None = None  # of each client's own test set; None: not registered
    validation_sizes: np.ndarray | None = None  # of what each client holds out of its training data

    @classmethod
    def of(cls, clients: Registered) -> Self:
        """Return the facts about clients whose data is at hand."""
        return cls(clients.shape, clients.num_outputs, clients.task, clients.sizes, clients.noisy)
