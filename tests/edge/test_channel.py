"""The radio channel, derived by hand, and distributions of the draws."""

import numpy as np
import pytest

from fedge.edge.channel import (
    BANDWIDTH_HZ,
    CELL_POWER_W,
    CLIENT_POWER_W,
    NOISE_W_PER_HZ,
    RADIUS_M,
    distance_m,
    draw_fading,
    draw_positions,
    mean_gain,
    path_loss_db,
    rate_bps,
)

MANY = 200_000
DISTANCES_M = np.array([100.0, 250.0, 500.0])


def test_path_loss() -> None:
    assert path_loss_db(DISTANCES_M) == pytest.approx([90.5, 105.4625, 116.7813], abs=5e-5)
    assert path_loss_db(1000.0) == pytest.approx(128.1)


def test_the_minimum_distance_is_one_metre() -> None:
    # 128.1 - 3 * 37.6
    assert path_loss_db(np.array([0.0, 0.5, 1.0])) == pytest.approx(np.full(3, 15.3))


def test_mean_gain_falls_with_distance_to_the_power_3_76() -> None:
    assert mean_gain(1000.0) == pytest.approx(10**-12.81)
    assert mean_gain(200.0) / mean_gain(100.0) == pytest.approx(2**-3.76)


@pytest.mark.parametrize(
    ("power_w", "mbps"),
    [(CLIENT_POWER_W, [222.582, 123.561, 52.973]), (CELL_POWER_W, [322.115, 222.719, 147.679])],
    ids=["up", "down"],
)
def test_rates_at_mean_gain(power_w: float, mbps: list[float]) -> None:
    rates = rate_bps(BANDWIDTH_HZ, power_w, mean_gain(DISTANCES_M), NOISE_W_PER_HZ)
    assert rates / 1e6 == pytest.approx(mbps, abs=5e-4)


def test_rate_by_hand() -> None:
    # signal-to-noise ratios of 1, 3 and 7: one, two and three bits per hertz
    assert rate_bps(10.0, 2.0, np.array([5.0, 15.0, 35.0]), 1.0) == pytest.approx([10, 20, 30])
    assert rate_bps(np.array([1.0, 10.0]), 1.0, 30.0, np.array([2.0, 1.0])) == pytest.approx([4, 20])


def test_a_signal_far_below_the_noise_has_a_positive_rate() -> None:
    # log2(1 + x) is x / ln 2 for small x; 1 + 1e-20 in floats is 1
    assert rate_bps(1.0, 1.0, 1e-20, 1.0) == pytest.approx(1e-20 / np.log(2), rel=1e-12)


def test_fading_keeps_the_mean_gain() -> None:
    assert draw_fading((3, MANY), np.random.default_rng(1)).mean(axis=1) == pytest.approx(np.ones(3), rel=0.01)


def test_fading_is_half_the_sum_of_two_squared_normals() -> None:
    drawn = draw_fading(MANY, np.random.default_rng(2))
    a, b = np.random.default_rng(3).standard_normal((2, MANY))
    shares = np.linspace(0.05, 0.95, 19)
    assert np.quantile(drawn, shares) == pytest.approx(np.quantile((a**2 + b**2) / 2, shares), abs=0.02)
    # that is exponential: P(fading > x) = exp(-x)
    assert np.mean(drawn > 2) == pytest.approx(np.exp(-2), abs=0.003)


def test_positions_are_uniform_in_the_disc() -> None:
    positions = draw_positions(MANY, RADIUS_M, np.random.default_rng(4))
    assert positions.shape == (MANY, 2)
    distance = distance_m(positions)
    assert distance.max() <= RADIUS_M
    # the inner half of the radius has a quarter of the area; the mean distance is the integral of 2 r^2 / R^2
    assert np.mean(distance < RADIUS_M / 2) == pytest.approx(1 / 4, abs=0.005)
    assert distance.mean() == pytest.approx(2 / 3 * RADIUS_M, rel=0.005)
    quadrants = np.bincount(2 * (positions[:, 0] > 0) + (positions[:, 1] > 0)) / MANY
    assert quadrants == pytest.approx(np.full(4, 1 / 4), abs=0.005)


def test_each_client_may_have_its_own_radius() -> None:
    radii = np.repeat([1.0, 100.0], MANY // 2)
    share = distance_m(draw_positions(MANY, radii, np.random.default_rng(5))) / radii
    assert share.max() <= 1
    assert share.reshape(2, -1).mean(axis=1) == pytest.approx([2 / 3, 2 / 3], rel=0.01)


def test_more_clients_do_not_change_the_first_positions() -> None:
    few, more = (draw_positions(num, 10.0, np.random.default_rng(6)) for num in (3, 5))
    assert np.array_equal(more[:3], few)


def test_distance_from_the_centre() -> None:
    assert distance_m(np.array([[3.0, -4.0], [0.0, 0.0]])).tolist() == [5, 0]
