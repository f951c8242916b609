"""How clients move between cells: by chance, or as a trace says."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from fedge.core.cell_grid import Grid
from fedge.edge.trace_files import read_columns


def destinations(grid: Grid, move_to: Literal["anywhere", "neighbours"]) -> np.ndarray:
    """Where a client that leaves a cell (row) goes (column): [n, n] probabilities, all zero if there is one cell.

    Any other cell in proportion to 1/distance, or the up to eight neighbours alike.
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
    """The cells of all clients after each has moved with its own probability; who has nowhere to go stays."""
    leaving = rng.random(len(cells)) < rates
    chances = rng.random(len(cells))  # for those who stay too: a client's draw does not hang on who else moves
    after = cells.copy()
    for cell in np.unique(cells[leaving]):
        reach = destinations[cell].cumsum()
        if reach[-1] == 0:
            continue
        movers = np.flatnonzero(leaving & (cells == cell))
        # Ending in exactly 1, above every chance; to the right of equal values, past cells of probability zero.
        after[movers] = np.searchsorted(reach / reach[-1], chances[movers], side="right")
    return after


class MobilityTrace(NamedTuple):
    """Which client enters which cell when, in order of time."""

    times: np.ndarray
    clients: np.ndarray
    cells: np.ndarray

    @staticmethod
    def read(path: str | Path, num_clients: int, num_cells: int) -> MobilityTrace:
        """Of a CSV file with the columns client, time and cell, in which no client goes back in time."""
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
        """The cell of each client at a time; clients without a row by then are where they were `before`."""
        past = slice(np.searchsorted(self.times, time, side="right"))
        cells = before.copy()
        cells[self.clients[past]] = self.cells[past]  # of several rows of a client the last one counts
        return cells
