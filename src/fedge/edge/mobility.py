"""Client mobility between cells: random, or read from a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from fedge.core.cell_grid import Grid
from fedge.edge.trace_files import read_columns


def destinations(grid: Grid, move_to: Literal["anywhere", "neighbours"]) -> np.ndarray:
    """Return the probabilities [n, n] that a client leaving a cell (row) moves to a cell (column).

    They are proportional to 1/distance for "anywhere", and equal for the up to eight neighbours for "neighbours". With
    a single cell they are all zero.
    """
    if grid.num_cells == 1:
        return np.zeros((1, 1))
    if move_to == "neighbours":
        weights = grid.neighbours.astype(float)
    else:
        distances = grid.distances
        weights = np.divide(1, distances, out=np.zeros_like(distances), where=distances > 0)
    return np.asarray(weights / weights.sum(1, keepdims=True))


def move(
    cells: np.ndarray, rates: np.ndarray | float, destinations: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return the clients' cells after each has moved with its probability. Without a destination, a client stays."""
    leaving = rng.random(len(cells)) < rates
    chances = rng.random(len(cells))  # for clients that stay too: a client's draw must not depend on who else moves
    after = cells.copy()
    for cell in np.unique(cells[leaving]):
        reach = destinations[cell].cumsum()
        if reach[-1] == 0:
            continue
        movers = np.flatnonzero(leaving & (cells == cell))
        # Dividing makes the last value exactly 1, above every draw; side="right" skips cells of probability zero.
        after[movers] = np.searchsorted(reach / reach[-1], chances[movers], side="right")
    return after


class MobilityTrace(NamedTuple):
    """The times at which clients enter cells, in chronological order."""

    times: np.ndarray
    clients: np.ndarray
    cells: np.ndarray

    @staticmethod
    def read(path: str | Path, num_clients: int, num_cells: int) -> MobilityTrace:
        """Read a CSV file with the columns client, time and cell. Raises DataError if a client goes back in time."""
        columns = read_columns(path, ("client", "time", "cell"))
        clients, cells = columns.whole("client", num_clients), columns.whole("cell", num_cells)
        times = columns.values["time"]
        by_client = np.argsort(clients, kind="stable")
        back = np.zeros(len(times), bool)
        back[by_client[1:]] = (np.diff(clients[by_client]) == 0) & (np.diff(times[by_client]) < 0)
        columns.refuse(back, "time", "no earlier than in the row before of the same client")
        order = np.argsort(times, kind="stable")
        return MobilityTrace(times[order], clients[order], cells[order])

    def cells_at(self, time: float, before: np.ndarray) -> np.ndarray:
        """Return the cell of each client at a time; clients without a row up to then stay where they were `before`."""
        past = slice(np.searchsorted(self.times, time, side="right"))
        cells = before.copy()
        cells[self.clients[past]] = self.cells[past]  # the last row of a client wins
        return cells
