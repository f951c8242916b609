"""Cells on a grid: their coordinates, their neighbours and their initial numbers of clients.

Cells are numbered row by row. Spatial data partitions and client mobility both use this grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta

from fedge.core.errors import ConfigError

NUM_CELLS = 25
"""Default number of cells."""

CellCount = Annotated[int, Meta(ge=1, le=10_000)]
Shape = Annotated[list[CellCount], Meta(min_length=2, max_length=2)]
"""Rows and columns, as an option."""
Occupancy = list[Annotated[int, Meta(ge=0)]]
"""Clients of each cell, as an option."""


class Grid(NamedTuple):
    """Cells in rows and columns; a cell's index is row * cols + column."""

    rows: int
    cols: int

    @staticmethod
    def of(num_cells: int) -> Grid:
        """Return the grid with this many cells that is closest to a square."""
        if num_cells < 1:
            raise ConfigError(f"cells: expected at least one cell, got {num_cells}")
        rows = next(factor for factor in range(isqrt(num_cells), 0, -1) if num_cells % factor == 0)
        return Grid(rows, num_cells // rows)

    @staticmethod
    def chosen(num_cells: int | None, shape: Sequence[int] | None) -> Grid:
        """Return the grid described by the options `cells` and `grid`, either of which may be omitted.

        Raises ValueError if they disagree; the options reader adds the configuration path.
        """
        if shape is None:
            return Grid.of(NUM_CELLS if num_cells is None else num_cells)
        grid = Grid(*shape)
        if num_cells not in (None, grid.num_cells):
            raise ValueError(
                f"grid {list(grid)} has {grid.num_cells} cells, but cells is {num_cells}; "
                "set only one of them, or make them agree"
            )
        return grid

    @property
    def num_cells(self) -> int:
        return self.rows * self.cols

    @property
    def coordinates(self) -> np.ndarray:
        """Row and column of each cell, `[n, 2]`."""
        return np.stack(np.divmod(np.arange(self.num_cells), self.cols), axis=1)

    @property
    def distances(self) -> np.ndarray:
        """Euclidean distances between cells, `[n, n]`."""
        return np.asarray(np.hypot(*self._steps))

    @property
    def neighbours(self) -> np.ndarray:
        """Boolean matrix of cells that share a side or a corner, `[n, n]`."""
        return np.asarray(np.abs(self._steps).max(0) == 1)

    @property
    def snake(self) -> np.ndarray:
        """All cells in boustrophedon order: the first row left to right, the second right to left, and so on."""
        cells = np.arange(self.num_cells).reshape(self.rows, self.cols)
        cells[1::2] = cells[1::2, ::-1].copy()
        return cells.reshape(-1)

    @property
    def _steps(self) -> np.ndarray:
        """Row and column offsets from each cell to each other cell, `[2, n, n]`."""
        places = self.coordinates.T
        return np.asarray(places[:, None, :] - places[:, :, None])


def occupancy(num_clients: int, num_cells: int) -> np.ndarray:
    """Return the number of clients per cell: an even split, with the remainder in the first cells."""
    if num_clients < 0 or num_cells < 1:
        raise ConfigError(f"cells: cannot place {num_clients} clients in {num_cells} cells; use at least one cell")
    each, remainder = divmod(num_clients, num_cells)
    return each + (np.arange(num_cells) < remainder).astype(int)


def check_occupancy(counts: Sequence[int], num_clients: int, num_cells: int, path: str) -> np.ndarray:
    """Return the number of clients per cell from the option at `path`; raises ConfigError if it does not fit."""
    if len(counts) != num_cells:
        raise ConfigError(f"{path}: expected one number for each of {num_cells} cells, got {len(counts)}")
    if sum(counts) != num_clients:
        raise ConfigError(f"{path}: expected numbers that add up to the {num_clients} clients, got {sum(counts)}")
    return np.array(counts, int)
