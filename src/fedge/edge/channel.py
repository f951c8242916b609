"""The radio channel between a base station and its clients: path loss, fading, rates and client positions.

Path loss follows ETSI's outdoor model for LTE; fading is Rayleigh. All functions take arrays with one entry per client.
"""

from __future__ import annotations

import numpy as np

BANDWIDTH_HZ = 20e6
CELL_POWER_W = 6.3
CLIENT_POWER_W = 0.2
NOISE_W_PER_HZ = 10**-20.4
RADIUS_M = 500.0
LEAST_DISTANCE_M = 1.0

Values = float | np.ndarray


def path_loss_db(distance_m: Values) -> np.ndarray:
    """Return 128.1 + 37.6 * log10(d / 1 km) in dB; distances below one metre count as one metre."""
    return np.asarray(128.1 + 37.6 * np.log10(np.maximum(distance_m, LEAST_DISTANCE_M) / 1000))


def mean_gain(distance_m: Values) -> np.ndarray:
    """Return the ratio of received to sent power without fading."""
    return np.asarray(10 ** (-path_loss_db(distance_m) / 10))


def draw_fading(shape: int | tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw Rayleigh fading factors of the power gain, with mean one: (a^2 + b^2) / 2 with a, b ~ N(0, 1)."""
    return rng.standard_exponential(shape)  # the same distribution: half the sum of two such squares


def rate_bps(bandwidth_hz: Values, power_w: Values, gain: Values, noise_w_per_hz: Values) -> np.ndarray:
    """Return the Shannon capacity, in bit/s, of a link that has the whole bandwidth."""
    signal_to_noise = np.asarray(power_w) * gain / (np.asarray(noise_w_per_hz) * bandwidth_hz)
    return np.asarray(bandwidth_hz * np.log1p(signal_to_noise) / np.log(2))  # exact for weak signals too


def draw_positions(num: int, radius_m: Values, rng: np.random.Generator) -> np.ndarray:
    """Draw positions [num, 2] in metres from the centre, uniform in discs; the radius may differ per client."""
    u, v = rng.random((num, 2)).T
    distance, angle = radius_m * np.sqrt(u), 2 * np.pi * v  # the root: area grows with the square of the distance
    return np.stack([distance * np.cos(angle), distance * np.sin(angle)], axis=1)


def distance_m(positions: np.ndarray) -> np.ndarray:
    """Return the distance in metres of positions [num, 2] from the centre."""
    return np.asarray(np.hypot(positions[:, 0], positions[:, 1]))
