"""Partitions: how samples are assigned to clients.

Every training sample goes to exactly one client, except where `natural` selects fewer clients than the data has.
The test set follows: a client is tested on its own classes, or on samples of the same key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np
from msgspec import Meta

from fedge.core.cell_grid import NUM_CELLS, CellCount, Grid, Occupancy, Shape, check_occupancy, occupancy
from fedge.core.errors import DataError, nearest
from fedge.core.parts import Part
from fedge.core.schema import Options
from fedge.data.apportionment import (
    MAX_ALPHA,
    MIN_ALPHA,
    adjacent_classes,
    apportion,
    check_classes,
    check_clients,
    check_min_size,
    choose_classes,
    class_parts,
    count,
    cut_alike,
    deal_counts,
    deal_shards,
    draw_proportions,
    fill_up,
    follow,
    is_classes,
    mix,
    normalised,
)

Rng = np.random.Generator


class Labels(NamedTuple):
    """What partitioners know about samples: targets, and columns such as the writer."""

    y: np.ndarray
    columns: Mapping[str, np.ndarray] = {}

    def take(self, rows: np.ndarray) -> Labels:
        return Labels(self.y[rows], {name: column[rows] for name, column in self.columns.items()})


class Split(NamedTuple):
    """The samples of each client, as ascending indices into the training and the test set."""

    train: list[np.ndarray]
    test: list[np.ndarray]
    names: tuple[str, ...] = ()  # names of the clients, where the data has them


class Partitioner(Options):
    """How samples are assigned to clients; each kind implements `split`."""

    part = Part("partition", "fedge.partitions")

    def split(self, train: Labels, test: Labels, num_clients: Any, rng: Rng) -> Split:
        """Assign samples to `num_clients` clients; None means all that the data has (`Natural` only)."""
        raise TypeError(f"{type(self).__name__} does not implement `split`")


class Iid(Partitioner, tag="iid"):
    """Shuffled, equal parts."""

    def split(self, train: Labels, test: Labels, num_clients: int, rng: Rng) -> Split:
        check_clients(num_clients, len(train.y))
        parts = np.array_split(rng.permutation(len(train.y)), num_clients)
        return _followed([np.sort(part) for part in parts], train, test, rng)


class Shards(Partitioner, tag="shards"):
    """Sorted by class and cut into equal shards: a client gets `per_client` shards, so about as many classes.

    The test set is sorted and cut in the same way, and a client gets the test shards with the same numbers.
    """

    per_client: Annotated[int, Meta(ge=1, description="Shards of each client.")] = 2
    deal: Annotated[
        Literal["random", "strided"],
        Meta(description="Assignment of shards: random, or shards i, i + clients, i + 2*clients ... for client i."),
    ] = "random"

    def split(self, train: Labels, test: Labels, num_clients: int, rng: Rng) -> Split:
        num_samples = len(train.y)
        check_clients(num_clients, num_samples)
        check_classes(train.y, "shards")
        num_shards = self.per_client * num_clients
        if num_shards > num_samples:
            raise DataError(
                f"data.partition.per_client: {self.per_client} shards for each of {num_clients} clients need "
                f"{num_shards} training samples, but there are only {num_samples}; "
                f"at most {num_samples // num_clients} are possible with this data.clients"
            )
        cuts = np.arange(1, num_shards) * num_samples // num_shards
        if self.deal == "random":
            deal = rng.permutation(num_shards).reshape(num_clients, self.per_client)
        else:
            deal = np.arange(num_shards).reshape(self.per_client, num_clients).T
        return Split(
            deal_shards(train.y, np.arange(num_samples), cuts, deal),
            deal_shards(test.y, *cut_alike(train.y, test.y, cuts), deal),
        )


class Classes(Partitioner, tag="classes"):
    """Exactly `k` classes for each client: every class is cut into equal parts, and a client gets parts of k classes.

    Classes have equal numbers of parts, as far as possible. With `pairs = "adjacent"` neighbouring classes go together,
    such as 0 and 1, 2 and 3, ... for k = 2, and each group of k classes goes to equally many clients, as far as
    possible.
    """

    k: Annotated[int, Meta(ge=1, description="Classes of each client.")] = 2
    pairs: Annotated[
        Literal["random", "adjacent"],
        Meta(description="Combinations of classes: random, or neighbours such as 0 and 1, 2 and 3."),
    ] = "random"

    def split(self, train: Labels, test: Labels, num_clients: int, rng: Rng) -> Split:
        check_clients(num_clients, len(train.y))
        check_classes(train.y, "classes")
        classes, totals = np.unique(train.y, return_counts=True)
        parts = class_parts(totals, self.k, num_clients)
        if self.pairs == "adjacent":
            chosen = adjacent_classes(totals, self.k, num_clients, rng)
        else:
            chosen = choose_classes(parts, self.k, num_clients, rng)
        counts = np.zeros(chosen.shape, int)
        for label, total in enumerate(totals):
            owners = rng.permutation(np.flatnonzero(chosen[:, label]))
            counts[owners, label] = [len(part) for part in np.array_split(np.arange(total), len(owners))]
        return _followed(deal_counts(train.y, classes, counts, rng), train, test, rng)


class Dirichlet(Partitioner, tag="dirichlet"):
    """Label skew: each class is divided over the clients in proportions from a Dirichlet distribution."""

    alpha: Annotated[
        float, Meta(ge=MIN_ALPHA, le=MAX_ALPHA, description="Concentration: small values are skewed, large ones even.")
    ] = 0.5
    min_size: Annotated[int, Meta(ge=1, description="Smallest number of training samples of a client.")] = 1

    def split(self, train: Labels, test: Labels, num_clients: int, rng: Rng) -> Split:
        check_clients(num_clients, len(train.y))
        check_classes(train.y, "dirichlet")
        check_min_size(self.min_size, num_clients, len(train.y))
        classes, totals = np.unique(train.y, return_counts=True)
        shares = np.stack([draw_proportions(self.alpha, num_clients, rng) for _ in classes], axis=1)
        counts = apportion(totals, shares)
        fill_up(counts, self.min_size)
        return _followed(deal_counts(train.y, classes, counts, rng), train, test, rng)


class Sorted(Partitioner, tag="sorted"):
    """Sorted by class and cut into one equal part per client: a client has few classes, but at least two.

    A client that would have a single class swaps a sample with another client.
    """

    def split(self, train: Labels, test: Labels, num_clients: int, rng: Rng) -> Split:
        num_samples = len(train.y)
        check_clients(num_clients, num_samples)
        check_classes(train.y, "sorted")
        if num_samples < 2 * num_clients:
            raise DataError(
                f"data.clients: {num_clients} clients with two classes each need {2 * num_clients} training samples, "
                f"but there are only {num_samples}; at most {num_samples // 2} clients are possible"
            )
        cuts = np.arange(1, num_clients) * num_samples // num_clients
        return _split_sorted(train, test, cuts, rng, "data.partition")


class Unbalanced(Partitioner, tag="unbalanced"):
    """Parts of random sizes: samples are shuffled, or sorted by class, and cut at random positions.

    With `sorted` every client has at least two classes: one that would have a single class swaps a sample with another.
    """

    sorted: Annotated[bool, Meta(description="Sort samples by class before cutting, instead of shuffling them.")] = (
        False
    )
    min_size: Annotated[
        int, Meta(ge=1, description="Smallest number of training samples of a client; at least 2 if sorted.")
    ] = 1

    def split(self, train: Labels, test: Labels, num_clients: int, rng: Rng) -> Split:
        num_samples = len(train.y)
        min_size = max(self.min_size, 2) if self.sorted else self.min_size
        check_clients(num_clients, num_samples)
        check_min_size(min_size, num_clients, num_samples)
        spare = num_samples - min_size * num_clients
        cuts = np.sort(rng.integers(0, spare, num_clients - 1, endpoint=True)) + min_size * np.arange(1, num_clients)
        if not self.sorted:
            parts = np.split(rng.permutation(num_samples), cuts)
            return _followed([np.sort(part) for part in parts], train, test, rng)
        check_classes(train.y, "unbalanced")
        return _split_sorted(train, test, cuts, rng, "data.partition.sorted")


class Pachinko(Partitioner, tag="pachinko"):
    """Pachinko allocation: a client draws coarse classes, and fine classes within them, until these are used up.

    For classes that come in groups, such as those of CIFAR-100; all clients have the same number of samples.
    """

    alpha: Annotated[
        float, Meta(ge=MIN_ALPHA, le=MAX_ALPHA, description="Concentration of a client's coarse classes.")
    ] = 0.1
    beta: Annotated[
        float, Meta(ge=MIN_ALPHA, le=MAX_ALPHA, description="Concentration of the fine classes within a coarse one.")
    ] = 10.0
    column: Annotated[str, Meta(description="Column of the data set that has the coarse class.")] = "coarse"

    def split(self, train: Labels, test: Labels, num_clients: int, rng: Rng) -> Split:
        check_clients(num_clients, len(train.y))
        check_classes(train.y, "pachinko")
        coarse = _column(train, self.column, "pachinko")
        classes, first, left = np.unique(train.y, return_index=True, return_counts=True)
        groups = np.unique(coarse, return_inverse=True)[1].reshape(-1)
        group = groups[first]
        if not np.array_equal(group[np.searchsorted(classes, train.y)], groups):
            raise DataError(
                f"data.partition.column: every class must belong to one coarse class, but in {self.column!r} "
                "some belong to several; name another column"
            )
        counts = np.zeros((num_clients, len(classes)), int)
        for client, size in enumerate(np.diff(np.arange(num_clients + 1) * len(train.y) // num_clients)):
            counts[client] = self._draw(size, left, group, rng)
            left = left - counts[client]
        return _followed(deal_counts(train.y, classes, counts, rng), train, test, rng)

    def _draw(self, size: int, left: np.ndarray, group: np.ndarray, rng: Rng) -> np.ndarray:
        """Return a client's number of samples of each class; others get the share of an exhausted class or group."""
        num_groups = int(group.max()) + 1
        theta = draw_proportions(self.alpha, num_groups, rng)
        phi = np.zeros(len(group))
        for number in range(num_groups):
            phi[group == number] = draw_proportions(self.beta, int(np.count_nonzero(group == number)), rng)
        drawn = np.zeros(len(group), int)
        while (missing := size - drawn.sum()) > 0:
            live = left > drawn
            inner = normalised(np.where(live, phi, 0), live, group)
            outer = normalised(np.where(np.bincount(group, live) > 0, theta, 0), np.bincount(group, live) > 0)
            tried = rng.multinomial(missing, normalised(outer[group] * inner, live))
            drawn += np.minimum(tried, left - drawn)
        return drawn


class Spatial(Partitioner, tag="spatial"):
    """Spatially correlated: the clients of a cell have the same few classes, and nearby cells have similar classes.

    Samples are sorted by class and cut into one part per cell, along a snake through the grid: the first row to the
    right, the second to the left, and so on. The clients of a cell, starting with client 0 in cell 0, share its part at
    random.
    """

    cells: Annotated[
        CellCount | None,
        Meta(description=f"Number of cells, on a nearly square grid (default: {NUM_CELLS}, unless grid is set)."),
    ] = None
    grid: Annotated[Shape | None, Meta(description="Rows and columns of the grid, in place of cells.")] = None
    clients_per_cell: Annotated[
        Occupancy | None,
        Meta(description="Clients of each cell, whose samples are in proportion (default: balanced)."),
    ] = None

    def __post_init__(self) -> None:
        Grid.chosen(self.cells, self.grid)  # raises if both are given and disagree

    @property
    def cell_grid(self) -> Grid:
        return Grid.chosen(self.cells, self.grid)

    def occupancy(self, num_clients: int) -> np.ndarray:
        """Return the number of clients of each cell; a DataError if the setting is impossible."""
        num_cells = self.cell_grid.num_cells
        if self.clients_per_cell is not None:
            return check_occupancy(self.clients_per_cell, num_clients, num_cells, "data.partition.clients_per_cell")
        if num_cells > num_clients:
            raise DataError(
                f"data.partition.cells: with {num_cells} cells for {num_clients} clients some cells are empty; use at "
                f"most {num_clients} cells, raise data.clients, or list empty cells in data.partition.clients_per_cell"
            )
        return occupancy(num_clients, num_cells)

    def split(self, train: Labels, test: Labels, num_clients: int, rng: Rng) -> Split:
        num_samples = len(train.y)
        check_clients(num_clients, num_samples)
        check_classes(train.y, "spatial")
        counts, snake = self.occupancy(num_clients), self.cell_grid.snake
        cuts = counts[snake].cumsum()[:-1] * num_samples // num_clients
        parts = np.split(np.argsort(train.y, kind="stable"), cuts)
        of_cell = dict(zip(snake.tolist(), parts, strict=True))
        hands = [
            np.sort(hand)
            for cell in np.flatnonzero(counts).tolist()
            for hand in np.array_split(rng.permutation(of_cell[cell]), counts[cell])
        ]
        return _followed(hands, train, test, rng)


class Natural(Partitioner, tag="natural"):
    """By origin of the samples: a client is a writer, a speaker or a user. Its test set has the same key.

    With data.clients, that number of keys is used; otherwise all of them.
    """

    column: Annotated[
        str | None, Meta(description="Column of the data set that has the key; optional if there is only one column.")
    ] = None
    min_size: Annotated[
        int, Meta(ge=1, description="Smallest number of training samples of a key; others are not used.")
    ] = 1
    pick: Annotated[
        Literal["random", "largest"],
        Meta(description="Which keys are used if data.clients is smaller than their number."),
    ] = "random"

    def split(self, train: Labels, test: Labels, num_clients: int | None, rng: Rng) -> Split:
        name = self.column or next(iter(train.columns), None)
        if self.column is None and len(train.columns) > 1:
            names = ", ".join(sorted(train.columns))
            raise DataError(f"data.partition.column: the data set has several columns, {names}; name one of them")
        keys, sizes = np.unique(_column(train, name, "natural"), return_counts=True)
        large = np.flatnonzero(sizes >= self.min_size)
        num_clients = len(large) if num_clients is None else num_clients
        if not 0 < num_clients <= len(large):
            raise DataError(
                f"data.clients: got {num_clients} clients, but {name!r} has {len(large)} keys with at least "
                f"{self.min_size} training samples; lower data.clients or data.partition.min_size"
            )
        if self.pick == "largest":
            large = large[np.argsort(-sizes[large], kind="stable")]
        elif num_clients < len(large):
            large = rng.permutation(large)
        chosen = keys[np.sort(large[:num_clients])]
        whose = tuple(map(str, chosen.tolist()))
        return Split(_by_key(train, str(name), chosen), _by_key(test, str(name), chosen), whose)


Partition = Iid | Shards | Classes | Dirichlet | Sorted | Unbalanced | Pachinko | Spatial | Natural
PARTITIONS: tuple[type[Partitioner], ...] = get_args(Partition)


def _column(labels: Labels, name: str | None, partition: str) -> np.ndarray:
    if name is None or name not in labels.columns:
        known = ", ".join(sorted(labels.columns)) or "none"
        asked = f" {name!r}" if name else ""
        raise DataError(
            f"data.partition: {partition!r} needs a column{asked} of the data set, which has {known}"
            f"{nearest(name, labels.columns) if name else ''}; choose another column, partition or data set"
        )
    return labels.columns[name]


def _split_sorted(train: Labels, test: Labels, cuts: np.ndarray, rng: Rng, setting: str) -> Split:
    """Return samples sorted by class and cut at these positions, mixed until every client has two classes."""
    classes, totals = np.unique(train.y, return_counts=True)
    num_clients, num_others = len(cuts) + 1, len(train.y) - totals.max()
    if num_others < num_clients:
        raise DataError(
            f"{setting}: two classes for each of {num_clients} clients need {num_clients} samples outside the "
            f"largest class, but there are {num_others}; lower data.clients"
        )
    counts = np.stack([count(part, classes) for part in np.split(np.sort(train.y), cuts)])
    mix(counts)
    return _followed(deal_counts(train.y, classes, counts, rng), train, test, rng)


def _followed(parts: list[np.ndarray], train: Labels, test: Labels, rng: Rng) -> Split:
    """Return a split whose test set follows the training set; values count as one class."""
    if is_classes(train.y):
        return Split(parts, follow(parts, train.y, test.y, rng))
    return Split(parts, follow(parts, np.zeros(len(train.y), int), np.zeros(len(test.y), int), rng))


def _by_key(labels: Labels, name: str, keys: np.ndarray) -> list[np.ndarray]:
    """Return the samples of each key; the keys must be ascending."""
    column = labels.columns[name]
    known = np.flatnonzero(np.isin(column, keys))
    ordered = known[np.argsort(column[known], kind="stable")]
    return np.split(ordered, np.searchsorted(column[ordered], keys[1:]))
