"""Apportionment: integer numbers of clients and samples in given proportions, and the samples themselves."""

from __future__ import annotations

from heapq import heapify, heapreplace

import numpy as np

from fedge.core.errors import DataError

MIN_ALPHA, MAX_ALPHA = 1e-6, 1e6


def nearest_whole(number: float) -> int:
    """Return the nearest integer; halves are rounded up."""
    return int(number + 0.5)


def choose_clients(num_clients: int, fraction: float, rng: np.random.Generator) -> np.ndarray:
    """Return a random fraction of the clients, rounded to the nearest integer, in ascending order."""
    return np.sort(rng.choice(num_clients, nearest_whole(fraction * num_clients), replace=False))


def draw_proportions(alpha: float, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return one draw from a symmetric Dirichlet distribution.

    A gamma variable with a small shape underflows to zero, and zeros divided by their sum give NaN. Its
    logarithm does not: Gamma(a) = Gamma(a + 1) * U^(1/a), and log U is minus an exponential variable.
    """
    logs = np.log(rng.standard_gamma(alpha + 1, size)) - rng.standard_exponential(size) / alpha
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def follow(
    train: list[np.ndarray], labels_train: np.ndarray, labels_test: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return test samples in each client's training class proportions; classes that no client trains on are omitted."""
    classes = np.unique(labels_train)
    held = np.stack([count(labels_train[indices], classes) for indices in train])
    counts = apportion(count(labels_test, classes), held / held.sum(0))
    return deal_counts(labels_test, classes, counts, rng)


def count(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the number of samples of each class; the classes must be ascending."""
    places = np.searchsorted(classes, labels)
    known = places < len(classes)
    known[known] = classes[places[known]] == labels[known]
    return np.bincount(places[known], minlength=len(classes))


def apportion(totals: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return integers in proportion to the columns of `shares`; each column sums to its total.

    Uses largest remainders, accumulated over the columns: what a client loses by rounding in one class it gains in
    another, so that equal clients get equal totals.
    """
    counts = np.zeros(shares.shape, int)
    owed = np.zeros(len(shares))
    for k, total in enumerate(totals):
        quota = shares[:, k] * total
        counts[:, k] = np.floor(quota)
        remainder = quota - counts[:, k]
        owed += remainder
        num_left = total - counts[:, k].sum()
        rank = np.where(remainder > 1e-9, owed, -np.inf)  # below it is a rounding error of an integer
        lucky = np.argsort(-rank, kind="stable")[:num_left]
        counts[lucky, k] += 1
        owed[lucky] -= 1
    return counts


def fill_up(counts: np.ndarray, min_size: int) -> None:
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


def mix(counts: np.ndarray) -> None:
    """Swap single samples until every client has two classes, in place.

    This must be possible, and every client must have two samples. A client that has only class a swaps with the client
    that has most samples of other classes. That one has at least two, otherwise there would be fewer such samples than
    clients; so it keeps one and gets one of class a.
    """
    for poor in np.flatnonzero((counts > 0).sum(1) < 2):
        own = counts[poor].argmax()
        others = counts.copy()
        others[:, own] = 0
        if others[poor].any():  # fixed by an earlier swap
            continue
        donor = others.sum(1).argmax()
        label = others[donor].argmax()
        counts[donor, [label, own]] += [-1, 1]
        counts[poor, [label, own]] += [1, -1]


def deal_counts(
    labels: np.ndarray, classes: np.ndarray, counts: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return random samples for each client: of each class the number in the client's row of `counts`."""
    hands: list[list[np.ndarray]] = [[] for _ in counts]
    for k, label in enumerate(classes):
        samples = rng.permutation(np.flatnonzero(labels == label))
        for hand, part in zip(hands, np.split(samples, counts[:, k].cumsum()), strict=False):
            hand.append(part)
    return [np.sort(np.concatenate(hand)) for hand in hands]


def choose_classes(parts: np.ndarray, k: int, num_clients: int, rng: np.random.Generator) -> np.ndarray:
    """Return k different classes for each client, as a mask; each class is used as often as it has parts.

    The choice is random, except that a class with one part for every remaining client must be chosen. There are never
    more than k such classes, because k parts per remaining client are left; so all parts are used.
    """
    left = parts.copy()
    chosen = np.zeros((num_clients, len(parts)), bool)
    for client in range(num_clients):
        must = left == num_clients - client
        num_free = k - int(np.count_nonzero(must))
        chosen[client] = must
        if num_free:
            weights = np.where(must, 0, left)
            chosen[client, rng.choice(len(parts), num_free, replace=False, p=weights / weights.sum())] = True
        left -= chosen[client]
    return chosen[rng.permutation(num_clients)]


def adjacent_classes(totals: np.ndarray, k: int, num_clients: int, rng: np.random.Generator) -> np.ndarray:
    """Return k neighbouring classes for each client, as a mask `[num_clients, num_classes]`."""
    num_groups, rest = divmod(len(totals), k)
    if rest or num_groups > num_clients:
        raise DataError(
            f"data.partition.pairs: adjacent classes form groups of k = {k}, so expected a multiple of k "
            f"classes and at least one client per group, got {len(totals)} classes and {num_clients} clients"
        )
    groups = rng.permutation(np.arange(num_clients) % num_groups)
    chosen = np.repeat(groups[:, None] == np.arange(num_groups), k, axis=1)
    if (chosen.sum(0) > totals).any():
        raise DataError(
            f"data.partition.pairs: {num_clients} clients with {k} adjacent classes each need up to "
            f"{chosen.sum(0).max()} samples of a class, but one has {totals.min()}; lower data.clients"
        )
    return chosen


def class_parts(totals: np.ndarray, k: int, num_clients: int) -> np.ndarray:
    """Return the number of parts of each class: none is empty, and there are at most as many as clients."""
    num_classes, wanted = len(totals), k * num_clients
    if k > num_classes:
        raise DataError(f"data.partition.k: expected at most the {num_classes} classes of the training set, got {k}")
    if wanted < num_classes:
        raise DataError(
            f"data.partition.k: {num_clients} clients with {k} classes each cannot cover all {num_classes} "
            f"classes; expected at least {-(-num_classes // num_clients)} with this data.clients"
        )
    most = np.minimum(totals, num_clients)
    if most.sum() < wanted:
        raise DataError(
            f"data.partition.k: {num_clients} clients with {k} classes each need {wanted} parts, but the "
            f"classes have samples for only {most.sum()}; lower data.partition.k or data.clients"
        )
    parts = np.zeros(num_classes, int)
    while wanted:  # the largest classes get the remainder
        open_classes = np.flatnonzero(parts < most)
        each = max(1, wanted // len(open_classes))
        largest = open_classes[np.argsort(-totals[open_classes], kind="stable")][:wanted]
        added = np.minimum(each, (most - parts)[largest])
        parts[largest] += added
        wanted -= int(added.sum())
    return parts


def normalised(weights: np.ndarray, live: np.ndarray, group: np.ndarray | None = None) -> np.ndarray:
    """Return weights that sum to one, or to one in each group; equal weights where all live ones underflowed."""
    group = np.zeros(len(weights), int) if group is None else group
    none = np.bincount(group, weights)[group] <= 0
    weights = np.where(none & live, 1.0, weights)
    totals = np.bincount(group, weights)[group]
    return np.asarray(np.divide(weights, totals, out=np.zeros(len(weights)), where=totals > 0))


def cut_alike(labels_train: np.ndarray, labels_test: np.ndarray, cuts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the test samples of trained classes, and the positions at which to cut them when sorted.

    A cut within the training samples of a class is made at the same fraction of its test samples. Equal parts would
    diverge where classes are not equally frequent in the two sets, and clients would be tested on classes that they do
    not have.
    """
    classes, counts = np.unique(labels_train, return_counts=True)
    known = np.flatnonzero(np.isin(labels_test, classes))
    ends_train, ends_test = (np.append(0, c.cumsum()) for c in (counts, count(labels_test, classes)))
    return known, np.interp(cuts, ends_train, ends_test).astype(int)


def deal_shards(labels: np.ndarray, samples: np.ndarray, cuts: np.ndarray, deal: np.ndarray) -> list[np.ndarray]:
    ordered = samples[np.argsort(labels[samples], kind="stable")]
    shards = np.split(ordered, cuts)
    return [np.sort(np.concatenate([shards[i] for i in hand])) for hand in deal]


def hold_out(keys: np.ndarray, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the training and the test samples; the last samples of each key, but never all, are for the test."""
    order = np.argsort(keys, kind="stable")
    _, starts, sizes = np.unique(keys[order], return_index=True, return_counts=True)
    place = np.arange(len(keys)) - np.repeat(starts, sizes)  # position of a sample among those of its key
    is_test = place >= np.repeat(sizes - np.floor(sizes * fraction).astype(int), sizes)
    return np.sort(order[~is_test]), np.sort(order[is_test])


def is_classes(labels: np.ndarray) -> bool:
    """Return whether targets are classes, not values."""
    return labels.dtype.kind in "iu"


def check_classes(labels: np.ndarray, name: str) -> None:
    """Raise a DataError if targets are values, which the partition `name` cannot divide."""
    if not is_classes(labels):
        raise DataError(
            f"data.partition.name: {name!r} divides by class, but the targets of this data set are values, "
            "not classes; use 'iid'"
        )


def check_clients(num_clients: int, num_samples: int) -> None:
    """Raise a DataError if there are more clients than samples."""
    if num_clients > num_samples:
        raise DataError(
            f"data.clients: {num_clients} clients cannot share {num_samples} training samples; "
            f"at most {num_samples} are possible"
        )


def check_min_size(min_size: int, num_clients: int, num_samples: int) -> None:
    """Raise a DataError if there are too few samples for clients of this size."""
    if min_size * num_clients > num_samples:
        raise DataError(
            f"data.partition.min_size: {min_size} samples for each of {num_clients} clients need "
            f"{min_size * num_clients} training samples, but there are only {num_samples}; "
            f"at most {num_samples // num_clients} are possible with this data.clients"
        )
