"""Apportionment: whole numbers of clients and of samples in given proportions, and samples dealt in these numbers."""

from __future__ import annotations

from heapq import heapify, heapreplace

import numpy as np

MIN_ALPHA, MAX_ALPHA = 1e-6, 1e6


def nearest_whole(number: float) -> int:
    """The nearest whole number; of two, the higher."""
    return int(number + 0.5)


def choose_clients(num_clients: int, fraction: float, rng: np.random.Generator) -> np.ndarray:
    """So many random clients as are nearest to a fraction of them, ascending."""
    return np.sort(rng.choice(num_clients, nearest_whole(fraction * num_clients), replace=False))


def draw_proportions(alpha: float, size: int, rng: np.random.Generator) -> np.ndarray:
    """One draw of a symmetric Dirichlet distribution.

    A gamma variable with a small shape underflows to zero, and zeros divided by their sum give NaN. Its
    logarithm does not: Gamma(a) = Gamma(a + 1) * U^(1/a), and log U is minus an exponential variable.
    """
    logs = np.log(rng.standard_gamma(alpha + 1, size)) - rng.standard_exponential(size) / alpha
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def follow(
    train: list[np.ndarray], labels_train: np.ndarray, labels_test: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """The test set in each client's training class proportions; a class nobody trains on is not dealt."""
    classes = np.unique(labels_train)
    held = np.stack([count(labels_train[indices], classes) for indices in train])
    counts = apportion(count(labels_test, classes), held / held.sum(0))
    return deal_counts(labels_test, classes, counts, rng)


def count(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """How many samples of each class there are; the classes are ascending."""
    places = np.searchsorted(classes, labels)
    known = places < len(classes)
    known[known] = classes[places[known]] == labels[known]
    return np.bincount(places[known], minlength=len(classes))


def apportion(totals: np.ndarray, shares: np.ndarray) -> np.ndarray:
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
    """Swap single samples until every client has two classes; it must be possible, and every client have two samples.

    A client with class a alone swaps with the one that has most samples of other classes. That one has two at
    least, or there would be fewer such samples than clients; so it keeps one, and gets one of class a.
    """
    for poor in np.flatnonzero((counts > 0).sum(1) < 2):
        own = counts[poor].argmax()
        others = counts.copy()
        others[:, own] = 0
        if others[poor].any():  # an earlier swap has mended it
            continue
        donor = others.sum(1).argmax()
        label = others[donor].argmax()
        counts[donor, [label, own]] += [-1, 1]
        counts[poor, [label, own]] += [1, -1]


def deal_counts(
    labels: np.ndarray, classes: np.ndarray, counts: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """Random samples of each class, as many for each client as its row of `counts` says."""
    hands: list[list[np.ndarray]] = [[] for _ in counts]
    for k, label in enumerate(classes):
        samples = rng.permutation(np.flatnonzero(labels == label))
        for hand, part in zip(hands, np.split(samples, counts[:, k].cumsum()), strict=False):
            hand.append(part)
    return [np.sort(np.concatenate(hand)) for hand in hands]


def choose_classes(parts: np.ndarray, k: int, num_clients: int, rng: np.random.Generator) -> np.ndarray:
    """For each client k different classes, each class as often as it has parts.

    Left to chance but where a class has a part for every client that is still to choose. There are never more
    than k of those, as the parts left are k times the clients left; so it always comes out even.
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


def normalised(weights: np.ndarray, live: np.ndarray, group: np.ndarray | None = None) -> np.ndarray:
    """Weights that add up to one, or to one in each group; equal ones where those of all that are left underflowed."""
    group = np.zeros(len(weights), int) if group is None else group
    none = np.bincount(group, weights)[group] <= 0
    weights = np.where(none & live, 1.0, weights)
    totals = np.bincount(group, weights)[group]
    return np.asarray(np.divide(weights, totals, out=np.zeros(len(weights)), where=totals > 0))


def cut_alike(labels_train: np.ndarray, labels_test: np.ndarray, cuts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The test samples of trained classes, and where to cut them when sorted.

    A cut through the training samples of a class goes through its test samples at the same place. Equal parts
    would drift apart where classes are not equally frequent in the two sets, and test clients on classes that
    they do not have.
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
    """The samples to train on and to test on: of each key the last ones are for the test, never all of them."""
    order = np.argsort(keys, kind="stable")
    _, starts, sizes = np.unique(keys[order], return_index=True, return_counts=True)
    place = np.arange(len(keys)) - np.repeat(starts, sizes)  # of a sample among those of its key
    is_test = place >= np.repeat(sizes - np.floor(sizes * fraction).astype(int), sizes)
    return np.sort(order[~is_test]), np.sort(order[is_test])
