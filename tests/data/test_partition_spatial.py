"""Partition by cells on a grid."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.errors import ConfigError, DataError
from fedge.core.keys import generator
from fedge.core.schema import read
from fedge.data.partition import Labels, Spatial, Split

TEN_CLASSES = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 100))


def split(spatial: Spatial, train: np.ndarray, test: np.ndarray, num_clients: int, seed: int = 1) -> Split:
    return spatial.split(Labels(train), Labels(test), num_clients, generator(seed, "partition"))


def cell_samples(spatial: Spatial, train: list[np.ndarray]) -> list[list[int]]:
    """Return the samples of all clients of each cell, ascending."""
    counts = spatial.occupancy(len(train))
    ends = counts.cumsum()
    return [
        sorted(sample for own in train[end - count : end] for sample in own.tolist())
        for count, end in zip(counts, ends, strict=True)
    ]


def test_ten_equal_classes_on_a_five_by_five_grid() -> None:
    # 1000 samples give 40 per cell: class k ends in the middle of every third cell.
    found = split(Spatial(cells=25), TEN_CLASSES, TEN_CLASSES, 50)
    classes = [set(TEN_CLASSES[samples]) for samples in cell_samples(Spatial(), found.train)]
    rows = [classes[start : start + 5] for start in range(0, 25, 5)]
    assert rows == [
        [{0}, {0}, {0, 1}, {1}, {1}],
        [{3}, {3}, {2, 3}, {2}, {2}],
        [{4}, {4}, {4, 5}, {5}, {5}],
        [{7}, {7}, {6, 7}, {6}, {6}],
        [{8}, {8}, {8, 9}, {9}, {9}],
    ]
    assert [len(own) for own in found.train] == [20] * 50


def test_by_hand() -> None:
    # Sorted by class: 1 4 0 5 2 3. The snake through 2 x 2 cells is 0 1 3 2, with 1, 1, 0 and 2 of four clients.
    # It is cut at 6 * (1, 2, 2) // 4 = 1, 3, 3: cell 0 has one sample, cell 1 two, cell 3 none, cell 2 three.
    train, test = np.array([1, 0, 2, 2, 0, 1]), np.array([2, 2, 0, 1])
    found = split(Spatial(cells=4, clients_per_cell=[1, 1, 2, 0]), train, test, 4)
    assert [own.tolist() for own in found.train[:2]] == [[1], [0, 4]]
    assert sorted(map(len, found.train[2:])) == [1, 2]
    assert sorted(np.concatenate(found.train[2:])) == [2, 3, 5]


def test_cells_get_parts_in_proportion_to_their_clients() -> None:
    spatial = Spatial(grid=[1, 3], clients_per_cell=[5, 2, 3])
    found = split(spatial, TEN_CLASSES, TEN_CLASSES, 10)
    assert [len(samples) for samples in cell_samples(spatial, found.train)] == [500, 200, 300]
    assert [len(own) for own in found.train] == [100] * 10


def test_clients_of_a_cell_get_random_parts() -> None:
    # One cell: its clients get shuffled equal parts, with all classes in each.
    first, second = (split(Spatial(cells=1), TEN_CLASSES, TEN_CLASSES, 5, seed).train for seed in (1, 2))
    assert [len(own) for own in first] == [200] * 5
    assert all(len(set(TEN_CLASSES[own])) == 10 for own in first)
    assert not any(map(np.array_equal, first, second))


def test_samples_of_cells_do_not_depend_on_the_seed() -> None:
    first, second = (split(Spatial(), TEN_CLASSES, TEN_CLASSES, 60, seed).train for seed in (1, 2))
    assert cell_samples(Spatial(), first) == cell_samples(Spatial(), second)


def test_test_set_has_training_proportions() -> None:
    test = np.repeat(np.arange(10), 50)  # one for every two training samples
    found = split(Spatial(), TEN_CLASSES, test, 50)
    for own_train, own_test in zip(found.train, found.test, strict=True):
        held, tested = (np.bincount(side, minlength=10) for side in (TEN_CLASSES[own_train], test[own_test]))
        assert np.all(np.abs(tested - held / 2) < 1)


@settings(max_examples=100, deadline=None)
@given(
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.integers(0, 40),  # clients beyond one for each cell
    st.integers(0, 200),  # training samples beyond one for each client
    st.integers(1, 12),  # classes
    st.booleans(),
    st.integers(0, 10**6),
)
def test_every_sample_once_and_contiguous_parts_of_cells(
    shape: tuple[int, int], more_clients: int, more: int, num_classes: int, balanced: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    num_cells = shape[0] * shape[1]
    num_clients = num_cells + more_clients
    counts = None if balanced else rng.multinomial(num_clients, np.full(num_cells, 1 / num_cells)).tolist()
    spatial = Spatial(grid=list(shape), clients_per_cell=counts)
    train, test = (rng.integers(0, num_classes, size) for size in (num_clients + more, 50))
    found = split(spatial, train, test, num_clients, seed)

    assert len(found.train) == len(found.test) == num_clients
    assert np.array_equal(np.sort(np.concatenate(found.train)), np.arange(len(train)))
    assert min(map(len, found.train)) >= 1
    assert np.array_equal(np.sort(np.concatenate(found.test)), np.flatnonzero(np.isin(test, train)))
    # Along the snake classes ascend, and a cell has its share of the samples, with an error below one sample.
    by_cell = cell_samples(spatial, found.train)
    along = [sorted(train[by_cell[cell]]) for cell in spatial.cell_grid.snake]
    assert [label for part in along for label in part] == sorted(train)
    for samples, count in zip(by_cell, spatial.occupancy(num_clients), strict=True):
        assert abs(len(samples) - len(train) * count / num_clients) < 1


def test_cells_and_clients_that_setup_can_compare() -> None:
    assert Spatial().cell_grid == Spatial(cells=25).cell_grid == (5, 5)
    assert Spatial(cells=6).cell_grid == Spatial(grid=[2, 3]).cell_grid != Spatial(grid=[3, 2]).cell_grid
    assert Spatial(cells=4).occupancy(10).tolist() == [3, 3, 2, 2]
    assert Spatial(cells=4, clients_per_cell=[0, 1, 2, 7]).occupancy(10).tolist() == [0, 1, 2, 7]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cells": 25, "grid": [4, 7]}, r"data\.partition: grid \[4, 7\] has 28 cells, but cells is 25"),
        ({"cells": 0}, r"data\.partition\.cells: .* >= 1, got 0"),
        ({"grid": [5]}, r"data\.partition\.grid: expected array of length >= 2, got \[5\]"),
        ({"grid": [0, 5]}, r"data\.partition\.grid: .* >= 1, got \[0, 5\]"),
        ({"clients_per_cell": [3, -1]}, r"data\.partition\.clients_per_cell: .* >= 0, got \[3, -1\]"),
    ],
)
def test_impossible_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read({"name": "spatial", **options}, Spatial, "data.partition")


@pytest.mark.parametrize(
    ("spatial", "message"),
    [
        (
            Spatial(cells=4, clients_per_cell=[5, 5]),
            r"data\.partition\.clients_per_cell: expected one number for each of 4 cells, got 2",
        ),
        (
            Spatial(cells=2, clients_per_cell=[5, 4]),
            r"data\.partition\.clients_per_cell: expected numbers that add up to the 10 clients, got 9",
        ),
    ],
)
def test_occupancies_that_do_not_add_up(spatial: Spatial, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        split(spatial, TEN_CLASSES, TEN_CLASSES, 10)


def test_more_cells_than_clients() -> None:
    with pytest.raises(
        DataError, match=r"data\.partition\.cells: with 25 cells for 10 clients .*; use at most 10 cells, "
    ):
        split(Spatial(), TEN_CLASSES, TEN_CLASSES, 10)
    lonely = Spatial(grid=[1, 12], clients_per_cell=[0, 10, *[0] * 10])
    assert len(split(lonely, TEN_CLASSES, TEN_CLASSES, 10).train) == 10


def test_values_have_no_classes() -> None:
    values = np.linspace(0, 1, 20)[:, None]
    with pytest.raises(DataError, match=r"data\.partition\.name: 'spatial' divides by class, .* use 'iid'"):
        split(Spatial(cells=4), values, values, 4)
