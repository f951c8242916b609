"""Simulated seconds by hand. Bytes are decimal: at 20 Mbit/s a megabyte takes 0.4 s."""

import numpy as np
import pytest

from fedge.core.algorithm import Costs, Reply
from fedge.core.errors import ConfigError
from fedge.edge.clock import Between, FixedClock, LogNormal, Normal, Quantity, Times

MB = 1_000_000


def reply(ids: tuple[int, ...], down: list[int], batches: list[int], up: list[int]) -> Reply:
    costs = Costs(
        bytes_down=np.array(down, np.int64),
        bytes_up=np.array(up, np.int64),
        steps=np.full(len(ids), 99, np.int64),
        batches=np.array(batches, np.int64),
        flops=np.zeros(len(ids), np.int64),
    )
    return Reply({}, ids, np.ones(len(ids)), (), costs, np.zeros(len(ids)), communicated=True)


def times_of(clock: FixedClock, *replies: Reply, seed: int = 1) -> Times:
    return clock.times(list(replies), seed)


def test_one_client_by_hand() -> None:
    times = times_of(FixedClock(seconds_per_step=0.25), reply((0,), [MB], [10], [MB]))
    # 8 Mbit down at 20 Mbit/s, ten minibatches, 8 Mbit up at 5 Mbit/s
    assert times == pytest.approx((0.4 + 2.5 + 1.6, 0.4, 2.5, 1.6))
    assert times.wait == pytest.approx(0, abs=1e-12)


def test_defaults() -> None:
    assert times_of(FixedClock(), reply((0,), [0], [1000], [0])).total == pytest.approx(17)


def test_an_exchange_is_as_slow_as_its_slowest_client() -> None:
    times = times_of(FixedClock(seconds_per_step=1), reply((3, 5), [MB, MB], [2, 4], [MB, 2 * MB]))
    # 0.4 + 2 + 1.6 and 0.4 + 4 + 3.2: the first waits 3.6, the mean wait is 1.8
    assert times == pytest.approx((7.6, 0.4, 3, 2.4))
    assert times.wait == pytest.approx(1.8)


def test_exchanges_of_a_round_follow_each_other() -> None:
    clock = FixedClock(seconds_per_step=1)
    train, pull = reply((0, 1), [0, 0], [2, 4], [0, 0]), reply((1,), [0], [0], [MB])
    # 4 s until the slowest has trained, then 1.6 s for the pull; waits 1 on average, then 0
    times = times_of(clock, train, pull)
    assert times == pytest.approx((5.6, 0, 3, 1.6))
    assert times.wait == pytest.approx(1)


def test_an_exchange_that_nobody_answered_takes_no_time() -> None:
    nobody = reply((), [], [], [])
    assert times_of(FixedClock(), nobody) == Times() == (0, 0, 0, 0)
    assert times_of(FixedClock()).wait == 0


def test_one_value_for_each_client() -> None:
    clock = FixedClock(down_mbps=[8, 4, 2], up_mbps=[1, 1, 8], seconds_per_step=[1, 2, 3])
    times = times_of(clock, reply((0, 2), [MB, MB], [1, 1], [0, MB]))
    # client 0: 1 + 1 + 0, client 2: 4 + 3 + 1
    assert times == pytest.approx((8, 2.5, 2, 0.5))


def test_a_list_of_another_length_is_refused() -> None:
    clock = FixedClock(down_mbps=[1.0, 2.0], seconds_per_step=[1.0])
    with pytest.raises(ConfigError) as caught:
        clock.check(3)
    assert list(caught.value.problems) == [
        "edge.down_mbps: expected one value for each of 3 clients, got 2",
        "edge.seconds_per_step: expected one value for each of 3 clients, got 1",
    ]
    FixedClock(down_mbps=[1.0, 2.0]).check(2)


# ---------------------------------------------------------------- distributions

DISTRIBUTIONS: dict[str, Quantity] = {
    "normal": Normal(mean=2, std=0.5),
    "lognormal": LogNormal(median=2, sigma=0.5),
    "uniform": Between(low=1, high=3),
}


def seconds(quantity: Quantity, client: int, seed: int = 1) -> float:
    """The client's own seconds for one minibatch."""
    return times_of(FixedClock(seconds_per_step=quantity), reply((client,), [0], [1], [0]), seed=seed).total


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_draw_belongs_to_seed_and_client(name: str) -> None:
    quantity = DISTRIBUTIONS[name]
    assert seconds(quantity, 3) == seconds(quantity, 3)
    assert len({seconds(quantity, client, seed) for client in range(5) for seed in (1, 2)}) == 10
    both = times_of(FixedClock(seconds_per_step=quantity), reply((0, 3), [0, 0], [1, 1], [0, 0]))
    assert both.total == max(seconds(quantity, 0), seconds(quantity, 3))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_draws_are_distributed_as_told(name: str) -> None:
    drawn = np.array([seconds(DISTRIBUTIONS[name], client) for client in range(1000)])
    # medians are all 2; the standard error of the median is at most 0.05
    assert np.median(drawn) == pytest.approx(2, abs=0.2)
    # from the 16th to the 84th percentile: 2*0.5, 2*(exp(0.5) - exp(-0.5)) = 2.08, 0.68*2 = 1.36
    width = {"normal": 1.0, "lognormal": 2.08, "uniform": 1.36}[name]
    assert np.subtract(*np.percentile(drawn, [84, 16])) == pytest.approx(width, rel=0.15)
    assert drawn.min() > 0


def test_the_three_quantities_are_drawn_independently() -> None:
    clock = FixedClock(down_mbps=Between(low=1, high=3), up_mbps=Between(low=1, high=3))
    times = times_of(clock, reply((0,), [MB], [0], [MB]))
    assert times.down != times.up


def test_a_normal_draw_is_cut_off_above_zero() -> None:
    drawn = [seconds(Normal(mean=2, std=100), client) for client in range(50)]
    assert min(drawn) == pytest.approx(0.02)  # a hundredth of the mean


def test_bounds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match=r"high must be at least low \(3\), got 1"):
        Between(low=3, high=1)
