"""Cells on a grid."""

from __future__ import annotations

from math import sqrt

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.cell_grid import Grid, Occupancy, Shape, check_occupancy, occupancy
from fedge.core.errors import ConfigError

grids = st.builds(Grid, st.integers(1, 7), st.integers(1, 7))


@pytest.mark.parametrize(
    ("num_cells", "grid"),
    [
        (1, (1, 1)),
        (2, (1, 2)),
        (6, (2, 3)),
        (7, (1, 7)),
        (9, (3, 3)),  # factors 1, 3, 9: the middle one twice
        (10, (2, 5)),
        (16, (4, 4)),
        (25, (5, 5)),
        (28, (4, 7)),
        (54, (6, 9)),
    ],
)
def test_grids_are_as_square_as_possible(num_cells: int, grid: tuple[int, int]) -> None:
    assert Grid.of(num_cells) == grid


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 2000))
def test_sides_are_the_two_middle_factors(num_cells: int) -> None:
    factors = [factor for factor in range(1, num_cells + 1) if num_cells % factor == 0]
    middle = len(factors) // 2
    expected = (factors[middle],) * 2 if len(factors) % 2 else (factors[middle - 1], factors[middle])
    assert Grid.of(num_cells) == expected
    assert Grid.of(num_cells).num_cells == num_cells


@pytest.mark.parametrize("num_cells", [0, -4])
def test_zero_cells_are_rejected(num_cells: int) -> None:
    with pytest.raises(ConfigError, match=rf"cells: expected at least one cell, got {num_cells}"):
        Grid.of(num_cells)


def test_chosen_by_number_by_shape_or_by_default() -> None:
    assert Grid.chosen(None, None) == (5, 5)
    assert Grid.chosen(6, None) == (2, 3)
    assert Grid.chosen(None, [6, 1]) == (6, 1)
    assert Grid.chosen(6, [6, 1]) == (6, 1)
    with pytest.raises(ValueError, match=r"grid \[4, 7\] has 28 cells, but cells is 25; set only one of them"):
        Grid.chosen(25, [4, 7])


@pytest.mark.parametrize("shape", [[5], [5, 5, 1], [0, 5], [-5, -5], [2.5, 2]])
def test_invalid_shapes_are_rejected(shape: list[float]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(shape, Shape)


def test_occupancies_are_not_negative() -> None:
    assert msgspec.convert([0, 3], Occupancy) == [0, 3]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert([-1, 4], Occupancy)


def test_coordinates_and_distances_by_hand() -> None:
    # 0 1 2
    # 3 4 5
    grid = Grid(2, 3)
    assert grid.coordinates.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert grid.distances[0] == pytest.approx([0, 1, 2, 1, sqrt(2), sqrt(5)])
    assert grid.distances[4] == pytest.approx([sqrt(2), 1, sqrt(2), 1, 0, 1])
    assert np.flatnonzero(grid.neighbours[0]).tolist() == [1, 3, 4]
    assert np.flatnonzero(grid.neighbours[4]).tolist() == [0, 1, 2, 3, 5]
    assert grid.snake.tolist() == [0, 1, 2, 5, 4, 3]


def test_neighbours_in_a_corner_on_a_side_and_inside() -> None:
    # 3 in each corner, 5 on each side, 8 inside
    counts = Grid(4, 5).neighbours.sum(1).reshape(4, 5)
    assert counts.tolist() == [[3, 5, 5, 5, 3], [5, 8, 8, 8, 5], [5, 8, 8, 8, 5], [3, 5, 5, 5, 3]]


def test_a_single_cell_has_no_neighbours() -> None:
    grid = Grid(1, 1)
    assert grid.distances.tolist() == [[0]]
    assert grid.neighbours.tolist() == [[False]]
    assert grid.snake.tolist() == [0]


@settings(max_examples=50, deadline=None)
@given(grids)
def test_the_snake_visits_every_cell_one_step_at_a_time(grid: Grid) -> None:
    snake = grid.snake
    assert snake[0] == 0
    assert sorted(snake) == list(range(grid.num_cells))
    assert np.all(grid.distances[snake[:-1], snake[1:]] == 1)


@settings(max_examples=50, deadline=None)
@given(grids)
def test_neighbours_are_those_closer_than_two(grid: Grid) -> None:
    assert np.array_equal(grid.distances, grid.distances.T)
    assert np.array_equal(grid.neighbours, (grid.distances > 0) & (grid.distances < 2))


@pytest.mark.parametrize(
    ("num_clients", "num_cells", "counts"),
    [(10, 5, [2, 2, 2, 2, 2]), (11, 4, [3, 3, 3, 2]), (2, 3, [1, 1, 0]), (0, 2, [0, 0]), (7, 1, [7])],
)
def test_balanced_occupancy(num_clients: int, num_cells: int, counts: list[int]) -> None:
    assert occupancy(num_clients, num_cells).tolist() == counts


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 200))
def test_occupancy_sums_to_all_clients_and_differs_by_at_most_one(num_clients: int, num_cells: int) -> None:
    counts = occupancy(num_clients, num_cells)
    assert counts.sum() == num_clients
    assert counts[0] - counts[-1] <= 1
    assert np.all(np.diff(counts) <= 0)


def test_clients_need_at_least_one_cell() -> None:
    with pytest.raises(ConfigError, match="cells: cannot place 3 clients in 0 cells"):
        occupancy(3, 0)
    with pytest.raises(ConfigError, match="cells: cannot place -1 clients in 2 cells"):
        occupancy(-1, 2)


def test_given_occupancy() -> None:
    assert check_occupancy([1, 0, 4], 5, 3, "edge.clients_per_cell").tolist() == [1, 0, 4]
    with pytest.raises(ConfigError, match=r"^edge\.x: expected one number for each of 4 cells, got 3$"):
        check_occupancy([1, 0, 4], 5, 4, "edge.x")
    with pytest.raises(ConfigError, match=r"^edge\.x: expected numbers that add up to the 6 clients, got 5$"):
        check_occupancy([1, 0, 4], 6, 3, "edge.x")
