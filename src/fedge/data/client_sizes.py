"""Numbers of samples of clients, in total and by class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from torch import Tensor

from fedge.data.clients import Clients
from fedge.data.divided_dataset import DividedClients


class ClientSize(NamedTuple):
    """One client's number of samples, in total and by class."""

    client: int
    train: int
    test: int
    classes: list[int] | None  # None if targets are values


def measure(clients: Clients, which: Iterable[int], round: int = 1) -> Iterator[ClientSize]:
    """Yield the sizes of some clients in a round."""
    for client in which:
        if isinstance(clients, DividedClients):
            labels, num_test = clients.labels(client, round), clients.num_test(client)
        else:
            labels, num_test = clients.train(client, round).y, len(clients.test(client, round))
        yield ClientSize(client, len(labels), num_test, _count(labels, clients))


def _count(labels: Tensor, clients: Clients) -> list[int] | None:
    if clients.task == "classes":
        return [int(total) for total in labels.bincount(minlength=clients.num_outputs)]
    return [int(total) for total in labels.sum(0)] if clients.task == "labels" else None


def evenly(num_clients: int, most: int) -> list[int]:
    """Return at most `most` clients, evenly spaced."""
    count = min(num_clients, most)
    return [number * num_clients // count for number in range(count)]
