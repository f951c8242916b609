"""Cells on a grid: where they are, who is next to whom, and how many clients each has at first.

Cells are numbered row by row. Data is dealt along the grid and clients move on it, so both read it from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta

from fedge.core.errors import ConfigError

NUM_CELLS = 25
"""How many cells there are if nobody says."""

CellCount = Annotated[int, Meta(ge=1, le=10_000)]
Shape = Annotated[list[CellCount], Meta(min_length=2, max_length=2)]
"""Rows and columns, as an option."""
Occupancy = list[Annotated[int, Meta(ge=0)]]
"""Clients of each cell, as an option."""


class Grid(NamedTuple):
    """Cells in rows and columns; a cell's number is row * cols + column."""

    rows: int
    cols: int

    @staticmethod
    def of(num_cells: int) -> Grid:
        """As square as possible: the two middle factors, or the square root twice."""
        if num_cells < 1:
            raise ConfigError(f"cells: expected at least one cell, got {num_cells}")
        rows = next(factor for factor in range(isqrt(num_cells), 0, -1) if num_cells % factor == 0)
        return Grid(rows, num_cells // rows)

    @staticmethod
    def chosen(num_cells: int | None, shape: Sequence[int] | None) -> Grid:
        """The grid of two options, `cells` and `grid`, of which either may be left out.

        A ValueError if they disagree: what options say as they are read, before their path is known.
        """
        if shape is None:
            return Grid.of(NUM_CELLS if num_cells is None else num_cells)
        grid = Grid(*shape)
        if num_cells not in (None, grid.num_cells):
            raise ValueError(
                f"grid {list(grid)} makes {grid.num_cells} cells, but cells is {num_cells}; "
                "give one of them, or two that agree"
            )
        return grid

    @property
    def num_cells(self) -> int:
        return self.rows * self.cols

    @property
    def coordinates(self) -> np.ndarray:
        """Row and column of each cell, [n, 2]."""
        return np.stack(np.divmod(np.arange(self.num_cells), self.cols), axis=1)

    @property
    def distances(self) -> np.ndarray:
        """Euclidean, between coordinates, [n, n]."""
        return np.asarray(np.hypot(*self._steps))

    @property
    def neighbours(self) -> np.ndarray:
        """Which cells touch, by a side or a corner: up to eight for each, [n, n]."""
        return np.asarray(np.abs(self._steps).max(0) == 1)

    @property
    def snake(self) -> np.ndarray:
        """All cells, each next to the one before: the first row to the right, the second to the left, and so on."""
        cells = np.arange(self.num_cells).reshape(self.rows, self.cols)
        cells[1::2] = cells[1::2, ::-1].copy()
        return cells.reshape(-1)

    @property
    def _steps(self) -> np.ndarray:
        """Rows and columns from each cell to each, [2, n, n]."""
        places = self.coordinates.T
        return np.asarray(places[:, None, :] - places[:, :, None])


def occupancy(num_clients: int, num_cells: int) -> np.ndarray:
    """How many clients each cell has: as many as another, the remainder with the first cells."""
    if num_clients < 0 or num_cells < 1:
        raise ConfigError(f"cells: {num_clients} clients cannot be placed in {num_cells} cells; have at least one cell")
    each, remainder = divmod(num_clients, num_cells)
    return each + (np.arange(num_cells) < remainder).astype(int)


def check_occupancy(counts: Sequence[int], num_clients: int, num_cells: int, path: str) -> np.ndarray:
    """How many clients each cell has, as the option at `path` says; a ConfigError if that cannot be."""
    if len(counts) != num_cells:
        raise ConfigError(f"{path}: expected one number for each of {num_cells} cells, got {len(counts)}")
    if sum(counts) != num_clients:
        raise ConfigError(
            f"{path}: expected numbers that add up to the {num_clients} clients, got {sum(counts)} in all"
        )
    return np.array(counts, int)
