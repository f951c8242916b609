"""What clients have, counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from fedge.data.clients import Clients
from fedge.data.divided import DividedClients


class ClientSize(NamedTuple):
    """One client: how many samples it has, and how many of each class."""

    client: int
    train: int
    test: int
    classes: list[int] | None  # None: targets are values


def measure(clients: Clients, which: Iterable[int]) -> Iterator[ClientSize]:
    """The sizes of some clients."""
    for client in which:
        if isinstance(clients, DividedClients):
            labels, num_test = clients.labels(client), clients.num_test(client)
        else:
            labels, num_test = clients.train(client).y, len(clients.test(client))
        if labels.is_floating_point():
            several = isinstance(clients, DividedClients) and clients.multilabel
            classes = [int(total) for total in labels.sum(0)] if several else None
        else:
            classes = np.bincount(labels.numpy(), minlength=clients.num_outputs).tolist()
        yield ClientSize(client, int(clients.sizes[client]), num_test, classes)


def evenly(num_clients: int, most: int) -> list[int]:
    """At most so many clients, evenly spaced."""
    count = min(num_clients, most)
    return [number * num_clients // count for number in range(count)]
