"""Overhead of the edge model in a round of 10,000 clients: radio and upload times, in one cell and in 25."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.measure import interleaved
from fedge.edge import channel
from fedge.edge.uplink import finish_times

_CLIENTS = 10_000
_CELLS = (1, 25)
_UPLOAD_BITS = 32 * 56_900  # the MNIST CNN of Serena (2020)


def run(num_clients: int = _CLIENTS, repeats: int = 7) -> dict[str, object]:
    """Return milliseconds by part of a round, as medians over turns."""
    seconds = interleaved(parts(num_clients), repeats)
    return {name: round(1e3 * statistics.median(times), 2) for name, times in seconds.items()}


def parts(num_clients: int) -> dict[str, Callable[[], np.ndarray]]:
    """Return the functions to time, by name and number of cells.

    Clients become ready during the first half of the busiest cell's transmission time.
    """
    rng = np.random.default_rng(1)
    found: dict[str, Callable[[], np.ndarray]] = {"radio": partial(draw_transmissions, num_clients)}
    for num_cells in _CELLS:
        cells = rng.integers(num_cells, size=num_clients)
        transmission = draw_transmissions(num_clients)
        ready = rng.uniform(0, np.bincount(cells, transmission).max() / 2, num_clients)
        found[f"finish_times/{num_cells}"] = partial(finish_times, ready, transmission, cells)
    return found


def draw_transmissions(num_clients: int) -> np.ndarray:
    """Return the seconds of each client's upload, with new positions and fading, as in a round with `redraw`."""
    rng = np.random.default_rng(2)
    distance = channel.distance_m(channel.draw_positions(num_clients, channel.RADIUS_M, rng))
    gain = channel.mean_gain(distance) * channel.draw_fading(num_clients, rng)
    return _UPLOAD_BITS / channel.rate_bps(channel.BANDWIDTH_HZ, channel.CLIENT_POWER_W, gain, channel.NOISE_W_PER_HZ)


if __name__ == "__main__":
    import json

    print(json.dumps(run(), indent=2))
