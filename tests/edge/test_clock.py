"""Simulated seconds of fixed links, derived by hand. Units are decimal: at 20 Mbit/s a megabyte takes 0.4 s."""

import numpy as np
import pytest

from fedge.core.algorithm import Costs, Reply
from fedge.core.errors import ConfigError, DataError
from fedge.core.world import Spent
from fedge.edge.availability import AvailabilityTrace
from fedge.edge.client_values import Normal, UniformRange
from fedge.edge.clock import Device, FixedClock
from fedge.edge.selection import Uniform
from fedge.edge.world import SimulatedWorld

MB = 1_000_000


def reply(ids: tuple[int, ...], down: list[int], batches: list[int], up: list[int]) -> Reply:
    costs = Costs(
        bytes_down=np.array(down, np.int64),
        bytes_up=np.array(up, np.int64),
        steps=np.full(len(ids), 99, np.int64),
        batches=np.array(batches, np.int64),
        flops=np.zeros(len(ids), np.int64),
        samples=np.full(len(ids), 999, np.int64),
    )
    return Reply({}, ids, np.ones(len(ids)), (), costs, np.zeros(len(ids)), communicated=True)


def spend(clock: FixedClock, *replies: Reply, seed: int = 1) -> Spent:
    """Return the time of a round of these exchanges, in a world of ten clients."""
    world = SimulatedWorld(clock, Uniform(), 10, 1, seed, lambda ids: (ids, ids), 0)
    return world.spend(1, [0], [list(replies)], 0)


def seconds(spent: Spent) -> tuple[float, float, float, float]:
    return spent.total, spent.down, spent.compute, spent.up


def test_one_client_by_hand() -> None:
    spent = spend(FixedClock(seconds_per_step=0.25), reply((0,), [MB], [10], [MB]))
    # 8 Mbit down at 20 Mbit/s, ten minibatches, 8 Mbit up at 5 Mbit/s
    assert seconds(spent) == pytest.approx((0.4 + 2.5 + 1.6, 0.4, 2.5, 1.6))
    assert spent.wait == pytest.approx(0, abs=1e-12)


def test_defaults() -> None:
    assert spend(FixedClock(), reply((0,), [0], [1000], [0])).total == pytest.approx(17)


def test_an_exchange_takes_as_long_as_its_slowest_client() -> None:
    spent = spend(FixedClock(seconds_per_step=1), reply((3, 5), [MB, MB], [2, 4], [MB, 2 * MB]))
    # 0.4 + 2 + 1.6 and 0.4 + 4 + 3.2: the first waits 3.6, the mean wait is 1.8
    assert seconds(spent) == pytest.approx((7.6, 0.4, 3, 2.4))
    assert spent.wait == pytest.approx(1.8)


def test_exchanges_of_a_round_follow_each_other() -> None:
    train, pull = reply((0, 1), [0, 0], [2, 4], [0, 0]), reply((1,), [0], [0], [MB])
    # 4 s until the slowest has trained, then 1.6 s for the pull; waits 1 on average, then 0
    spent = spend(FixedClock(seconds_per_step=1), train, pull)
    assert seconds(spent) == pytest.approx((5.6, 0, 3, 1.6))
    assert spent.wait == pytest.approx(1)


def test_an_unanswered_exchange_takes_no_time() -> None:
    train, nobody = reply((0,), [0], [2], [0]), reply((), [], [], [])
    assert seconds(spend(FixedClock(seconds_per_step=1), train, nobody)) == (2, 0, 2, 0)


def test_one_value_for_each_client() -> None:
    clock = FixedClock(down_mbps=[8, 4, 2], up_mbps=[1, 1, 8], seconds_per_step=[1, 2, 3])
    spent = spend(clock, reply((0, 2), [MB, MB], [1, 1], [0, MB]))
    # client 0: 1 + 1 + 0, client 2: 4 + 3 + 1
    assert seconds(spent) == pytest.approx((8, 2.5, 2, 0.5))


def test_a_distribution_gives_each_client_its_own() -> None:
    clock = FixedClock(seconds_per_step=Normal(mean=2, std=0.5))
    one, other = (spend(clock, reply((client,), [0], [1], [0])).total for client in (0, 3))
    assert one != other
    assert spend(clock, reply((0, 3), [0, 0], [1, 1], [0, 0])).total == max(one, other)
    assert spend(clock, reply((0,), [0], [1], [0]), seed=2).total != one


def test_the_quantities_are_drawn_independently() -> None:
    clock = FixedClock(down_mbps=UniformRange(low=1, high=3), up_mbps=UniformRange(low=1, high=3))
    spent = spend(clock, reply((0,), [MB], [0], [MB]))
    assert spent.down != spent.up


def test_a_list_of_the_wrong_length_is_refused() -> None:
    clock = FixedClock(down_mbps=[1.0, 2.0], seconds_per_step=[1.0])
    with pytest.raises(ConfigError) as caught:
        clock.check(3)
    assert list(caught.value.problems) == [
        "edge.down_mbps: expected one value for each of 3 clients, got 2",
        "edge.seconds_per_step: expected one value for each of 3 clients, got 1",
    ]
    FixedClock(down_mbps=[1.0, 2.0]).check(2)


def test_a_trace_of_availability_is_read_before_anything_begins() -> None:
    with pytest.raises(DataError, match=r"/nowhere/there\.csv cannot be read"):
        FixedClock(availability=AvailabilityTrace(file="/nowhere/there.csv")).check(3)


# ---------------------------------------------------------------- energy


def test_energy_by_hand() -> None:
    spent = spend(FixedClock(seconds_per_step=0.25), reply((4, 7), [MB, MB], [10, 0], [MB, MB]))
    # 5 W for 2.5 s of computing, or none; 0.2 W for 1.6 s of sending; receiving and waiting are free
    assert spent.ids.tolist() == [4, 7]
    assert spent.joules == pytest.approx([12.5 + 0.32, 0.32])


def test_powers_are_options() -> None:
    clock = FixedClock(seconds_per_step=1, client_power_w=10, compute_power_w=2)
    assert spend(clock, reply((0,), [MB], [3], [MB])).joules == pytest.approx([2 * 3 + 10 * 1.6])


def test_energy_of_all_exchanges() -> None:
    train, pull = reply((0, 1), [0, 0], [2, 4], [0, 0]), reply((1,), [0], [0], [MB])
    spent = spend(FixedClock(seconds_per_step=1), train, pull)
    assert spent.ids.tolist() == [0, 1, 1]
    assert spent.joules == pytest.approx([10, 20, 0.32])


# ---------------------------------------------------------------- devices

SLOW = Device(share=0.25, compute_scale=4.0, mobility_rate=0.5)
FAST = Device(share=0.75)


def test_devices_are_assigned_by_their_shares() -> None:
    scales, rates = FixedClock(devices=[SLOW, FAST]).deal_devices(8, seed=1)
    assert sorted(scales.tolist()) == [1.0] * 6 + [4.0] * 2
    assert [rate for rate in rates.tolist() if rate == rate] == [0.5, 0.5]
    assert ((scales == 4) == (rates == 0.5)).all()


def test_devices_depend_on_the_seed() -> None:
    clock = FixedClock(devices=[SLOW, FAST])
    dealt = [tuple(clock.deal_devices(100, seed)[0].tolist()) for seed in (1, 1, 2)]
    assert dealt[0] == dealt[1] != dealt[2]


def test_three_thirds_cover_all_clients() -> None:
    """A third of ten is not an integer, and in floats three thirds are not one."""
    thirds = [Device(share=1 / 3, compute_scale=scale) for scale in (1.0, 2.0, 3.0)]
    scales, _ = FixedClock(devices=thirds).deal_devices(10, seed=1)
    assert sorted(scales.tolist()) == [1.0] * 3 + [2.0] * 4 + [3.0] * 3


def test_without_classes_all_devices_are_alike() -> None:
    scales, rates = FixedClock().deal_devices(3, seed=1)
    assert scales.tolist() == [1, 1, 1]
    assert np.isnan(rates).all()


def test_a_slow_device_computes_longer_and_sends_no_slower() -> None:
    clock = FixedClock(seconds_per_step=1, devices=[Device(share=1.0, compute_scale=4.0)])
    assert seconds(spend(clock, reply((0,), [MB], [2], [MB]))) == pytest.approx((0.4 + 8 + 1.6, 0.4, 8, 1.6))


def test_shares_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match=r"devices: expected shares that add up to 1, got 0\.5"):
        FixedClock(devices=[Device(share=0.25), Device(share=0.25)])


def test_devices_that_move_need_cells() -> None:
    with pytest.raises(ConfigError, match=r'edge\.devices: mobility_rate needs cells .*: set edge\.clock = "cells"'):
        FixedClock(devices=[SLOW, FAST]).check(8)


# ---------------------------------------------------------------- one cell


def test_all_clients_stay_in_one_cell() -> None:
    options = FixedClock()
    clock = options.build(3, 1, seed=1)
    places = clock.place()
    assert (places.cells.tolist(), options.cell_grid.num_cells, options.divided) == ([0, 0, 0], 1, False)
    assert clock.move(places, np.ones(3), 1, 0.0) is places


def test_a_single_server_merges_every_round_at_no_cost() -> None:
    clock = FixedClock()
    assert (clock.merges(1), clock.waits(1), clock.period, clock.backhaul_s(MB)) == (True, True, 1, 0.0)
