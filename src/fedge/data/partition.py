"""How samples are dealt to clients.

Every training sample goes to exactly one client. The test set follows: a client is tested on classes it has.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta

from fedge.core.errors import DataError
from fedge.core.schema import Options

MIN_ALPHA, MAX_ALPHA = 1e-6, 1e6


class Split(NamedTuple):
    """The samples of each client, as ascending indices into the training and the test set."""

    train: list[np.ndarray]
    test: list[np.ndarray]


class Iid(Options, tag="iid"):
    """Shuffled, equal parts."""

    def split(
        self, labels_train: np.ndarray, labels_test: np.ndarray, num_clients: int, rng: np.random.Generator
    ) -> Split:
        _check_clients(num_clients, len(labels_train))
        train = [np.sort(part) for part in np.array_split(rng.permutation(len(labels_train)), num_clients)]
        if not _is_classes(labels_train):
            labels_train, labels_test = (np.zeros(len(labels), int) for labels in (labels_train, labels_test))
        return Split(train, _follow(train, labels_train, labels_test, rng))


class Shards(Options, tag="shards"):
    """Sorted by class, cut into equal shards, dealt at random: a client has about `per_client` classes.

    The test set is sorted and cut alike, and a client gets the shards of the same numbers.
    """

    per_client: Annotated[int, Meta(ge=1, description="Shards that each client is dealt.")] = 2

    def split(
        self, labels_train: np.ndarray, labels_test: np.ndarray, num_clients: int, rng: np.random.Generator
    ) -> Split:
        _check_clients(num_clients, len(labels_train))
        _check_classes(labels_train, "shards")
        num_shards = self.per_client * num_clients
        if num_shards > len(labels_train):
            raise DataError(
                f"data.partition.per_client: {self.per_client} shards for each of {num_clients} clients are "
                f"{num_shards}, but there are only {len(labels_train)} training samples; "
                f"at most {len(labels_train) // num_clients} are possible with this data.clients"
            )
        cuts = np.arange(1, num_shards) * len(labels_train) // num_shards
        deal = rng.permutation(num_shards).reshape(num_clients, self.per_client)
        return Split(
            _deal_shards(labels_train, np.arange(len(labels_train)), cuts, deal),
            _deal_shards(labels_test, *_cut_alike(labels_train, labels_test, cuts), deal),
        )


class Dirichlet(Options, tag="dirichlet"):
    """Label skew: each class is divided over the clients in proportions from a Dirichlet distribution."""

    alpha: Annotated[
        float,
        Meta(ge=MIN_ALPHA, le=MAX_ALPHA, description="Concentration: small is skewed, large is even."),
    ] = 0.5
    min_size: Annotated[int, Meta(ge=1, description="Training samples that each client has at least.")] = 1

    def split(
        self, labels_train: np.ndarray, labels_test: np.ndarray, num_clients: int, rng: np.random.Generator
    ) -> Split:
        num_samples = len(labels_train)
        _check_clients(num_clients, num_samples)
        _check_classes(labels_train, "dirichlet")
        if self.min_size * num_clients > num_samples:
            raise DataError(
                f"data.partition.min_size: {self.min_size} samples for each of {num_clients} clients are "
                f"{self.min_size * num_clients}, but there are only {num_samples} training samples; "
                f"at most {num_samples // num_clients} are possible with this data.clients"
            )
        classes, totals = np.unique(labels_train, return_counts=True)
        shares = np.stack([draw_proportions(self.alpha, num_clients, rng) for _ in classes], axis=1)
        counts = _apportion(totals, shares)
        _fill_up(counts, self.min_size)
        train = _deal_counts(labels_train, classes, counts, rng)
        return Split(train, _follow(train, labels_train, labels_test, rng))


Partition = Iid | Shards | Dirichlet
PARTITIONS = (Iid, Shards, Dirichlet)


def draw_proportions(alpha: float, size: int, rng: np.random.Generator) -> np.ndarray:
    """One draw of a symmetric Dirichlet distribution.

    A gamma variable with a small shape underflows to zero, and zeros divided by their sum give NaN. Its
    logarithm does not: Gamma(a) = Gamma(a + 1) * U^(1/a), and log U is minus an exponential variable.
    """
    logs = np.log(rng.standard_gamma(alpha + 1, size)) - rng.standard_exponential(size) / alpha
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def _is_classes(labels: np.ndarray) -> bool:
    return labels.dtype.kind in "iu"


def _check_classes(labels: np.ndarray, name: str) -> None:
    if not _is_classes(labels):
        raise DataError(
            f"data.partition.name: {name!r} divides by class, but the targets of this data set are values, "
            "not classes; use 'iid'"
        )


def _check_clients(num_clients: int, num_samples: int) -> None:
    if num_clients > num_samples:
        raise DataError(
            f"data.clients: {num_clients} clients cannot share {num_samples} training samples; "
            f"at most {num_samples} are possible"
        )


def _cut_alike(labels_train: np.ndarray, labels_test: np.ndarray, cuts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The test samples of trained classes, and where to cut them when sorted.

    A cut through the training samples of a class goes through its test samples at the same place. Equal parts
    would drift apart where classes are not equally frequent in the two sets, and test clients on classes that
    they do not have.
    """
    classes, counts = np.unique(labels_train, return_counts=True)
    known = np.flatnonzero(np.isin(labels_test, classes))
    ends_train, ends_test = (np.append(0, c.cumsum()) for c in (counts, _count(labels_test, classes)))
    return known, np.interp(cuts, ends_train, ends_test).astype(int)


def _deal_shards(labels: np.ndarray, samples: np.ndarray, cuts: np.ndarray, deal: np.ndarray) -> list[np.ndarray]:
    ordered = samples[np.argsort(labels[samples], kind="stable")]
    shards = np.split(ordered, cuts)
    return [np.sort(np.concatenate([shards[i] for i in hand])) for hand in deal]


def _follow(
    train: list[np.ndarray], labels_train: np.ndarray, labels_test: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """The test set in each client's training class proportions; a class nobody trains on is not dealt."""
    classes = np.unique(labels_train)
    owner = np.empty(len(labels_train), int)
    for client, indices in enumerate(train):
        owner[indices] = client
    held = np.zeros((len(train), len(classes)))
    np.add.at(held, (owner, np.searchsorted(classes, labels_train)), 1)
    counts = _apportion(_count(labels_test, classes), held / held.sum(0))
    return _deal_counts(labels_test, classes, counts, rng)


def _count(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """How many samples of each class there are."""
    return np.array([np.count_nonzero(labels == label) for label in classes])


def _apportion(totals: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Whole numbers in proportion to the columns of `shares`, each column adding up to its total.

    By largest remainders, added up over the columns: what rounding takes from a client in one class it gets
    back in another, so that equal clients get equal numbers in all.
    """
    counts = np.zeros(shares.shape, int)
    owed = np.zeros(len(shares))
    for k, total in enumerate(totals):
        quota = shares[:, k] * total
        counts[:, k] = np.floor(quota)
        remainder = quota - counts[:, k]
        owed += remainder
        num_left = total - counts[:, k].sum()
        rank = np.where(remainder > 1e-9, owed, -np.inf)  # less is a rounding error of a whole number
        lucky = np.argsort(-rank, kind="stable")[:num_left]
        counts[lucky, k] += 1
        owed[lucky] -= 1
    return counts


def _fill_up(counts: np.ndarray, min_size: int) -> None:
    """Move samples from the largest clients, out of their largest classes, until all have `min_size`."""
    sizes = counts.sum(1)
    richest = [(-size, client) for client, size in enumerate(sizes)]
    heapify(richest)
    for poor in np.flatnonzero(sizes < min_size):
        for _ in range(min_size - sizes[poor]):
            size, donor = richest[0]
            label = counts[donor].argmax()
            counts[donor, label] -= 1
            counts[poor, label] += 1
            heapreplace(richest, (size + 1, donor))


def _deal_counts(
    labels: np.ndarray, classes: np.ndarray, counts: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """Random samples of each class, as many for each client as its row of `counts` says."""
    hands: list[list[np.ndarray]] = [[] for _ in counts]
    for k, label in enumerate(classes):
        samples = rng.permutation(np.flatnonzero(labels == label))
        for hand, part in zip(hands, np.split(samples, counts[:, k].cumsum()), strict=False):
            hand.append(part)
    return [np.sort(np.concatenate(hand)) for hand in hands]
