"""The simulated world, round by round: cohorts, deadlines and times. All durations are chosen by hand."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from fedge.core.algorithm import Costs, Late, Phases, Rejected, Reply
from fedge.edge import channel
from fedge.edge.availability import AvailabilityTrace, ConstantAvailability, DiurnalAvailability
from fedge.edge.cells import CellClock, CellRadio
from fedge.edge.clock import Clock, ClockOptions, Device, FixedClock, Participants
from fedge.edge.ledger import Ledger
from fedge.edge.selection import FedCS, SelectionOptions, Uniform
from fedge.edge.world import SimulatedWorld

MB = 1_000_000
ALL = Uniform(fraction=1.0)


class Timed(CellClock, tag="timed", kw_only=True):
    """Cells in which each client has a fixed compute time per minibatch, and sends in no time."""

    seconds: list[float]

    def build(self, num_clients: int, num_params: int, seed: int) -> Clock:
        return TimedCells(self, num_clients, num_params, seed)


class TimedCells(CellRadio):
    def phases(self, participants: Participants) -> Phases:
        compute = np.array(self._options.seconds)[participants.ids] * participants.costs.batches
        none = np.zeros(len(compute))
        return Phases(none, compute, none, compute)


def costs_of(number: int, batches: int = 1, up: int = 0) -> Costs:
    return Costs.free(number)._replace(batches=np.full(number, batches), bytes_up=np.full(number, up))


def reply(*ids: int, batches: int = 1, up: int = 0, late: tuple[int, ...] = ()) -> Reply:
    costs, nothing = costs_of(len(ids), batches, up), np.zeros(len(ids))
    too_late = Late(late, costs_of(len(late), batches, up)) if late else None
    return Reply({}, ids, nothing, late, costs, nothing, communicated=True, late=too_late)


def one_batch(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.ones(len(ids), np.int64), np.ones(len(ids), np.int64)


def world_of(
    edge: ClockOptions, num_clients: int = 4, selection: SelectionOptions = ALL, seed: int = 1, model_bytes: int = 0
) -> SimulatedWorld:
    return SimulatedWorld(edge, selection, num_clients, 1, seed, one_batch, model_bytes)


def at(world: SimulatedWorld, seconds: float) -> SimulatedWorld:
    """Set the simulated time of a world and return it."""
    state = world.state()
    world.restore({**state, "seconds": torch.full_like(state["seconds"], seconds)})
    return world


# ---------------------------------------------------------------- cohorts


def test_without_cells_all_are_asked_as_one() -> None:
    (cohort,) = world_of(FixedClock()).gather(1)
    assert cohort == (0, (0, 1, 2, 3), (0, 1, 2, 3))


def test_each_cell_asks_its_own_share_rounded_up() -> None:
    edge = CellClock(cells=3, clients_per_cell=[7, 0, 3])
    cohorts = world_of(edge, 10, Uniform(fraction=0.5)).gather(1)
    assert [(cohort.cell, len(cohort.asked)) for cohort in cohorts] == [(0, 4), (2, 2)]
    assert set(cohorts[0].asked) < set(range(7))
    assert set(cohorts[1].asked) < {7, 8, 9}


def test_one_cell_asks_the_same_clients_as_no_cells() -> None:
    flat, cell = (world_of(edge, 50, Uniform(count=7)) for edge in (FixedClock(), CellClock(cells=1)))
    assert [flat.gather(round) for round in (1, 2)] == [cell.gather(round) for round in (1, 2)]


def test_moved_clients_are_asked_in_their_new_cell() -> None:
    world = world_of(CellClock(cells=2, mobility_rate=1.0))
    assert [cohort.asked for cohort in world.gather(1)] == [(0, 1), (2, 3)]
    world.move(1)
    assert [cohort.asked for cohort in world.gather(2)] == [(2, 3), (0, 1)]


def test_availability_follows_the_simulated_day() -> None:
    """A quarter into the day all clients are available, three quarters into it none is."""
    day = DiurnalAvailability(mean=0.5, amplitude=0.5, period_s=100.0, spread=0.0)
    world = world_of(FixedClock(availability=day), 1000)
    assert len(at(world, 25.0).gather(1)[0].asked) == 1000
    assert at(world, 75.0).gather(1) == []
    assert 400 < len(at(world, 50.0).gather(1)[0].asked) < 600


def test_the_cohort_size_does_not_depend_on_availability(tmp_path: Path) -> None:
    file = tmp_path / "on.csv"
    file.write_text("client,start,end\n2,0,10\n5,0,20\n")
    edge = FixedClock(availability=AvailabilityTrace(file=str(file)))
    world = world_of(edge, 8, Uniform(fraction=0.5))
    assert world.gather(1)[0].asked == (2, 5)
    assert at(world, 10.0).gather(2)[0].asked == (5,)
    assert at(world, 20.0).gather(3) == []


def test_everyone_means_all_available_clients(tmp_path: Path) -> None:
    file = tmp_path / "on.csv"
    file.write_text("client,start,end\n2,0,10\n5,0,20\n7,0,20\n")
    world = world_of(FixedClock(availability=AvailabilityTrace(file=str(file))), 8, Uniform(count=1))
    assert len(world.gather(1)[0].asked) == 1
    assert world.gather(1, everyone=True)[0].asked == (2, 5, 7)
    assert at(world, 10.0).gather(2, everyone=True)[0].asked == (5, 7)


def test_dropped_clients_count_as_asked() -> None:
    world = world_of(FixedClock(dropout=0.3), 1000)
    first, again, second = world.gather(1)[0], world.gather(1)[0], world.gather(2)[0]
    # 700 on average, with a standard deviation of sqrt(1000*0.3*0.7) = 14.5
    assert 620 < len(first.present) < 780
    assert len(first.asked) == 1000
    assert first == again
    assert first.present != second.present


def test_all_may_drop_out() -> None:
    assert world_of(FixedClock(dropout=1.0)).gather(1) == [(0, (0, 1, 2, 3), ())]


def test_availability_and_dropout_are_independent() -> None:
    """Half of the clients are available and half of those drop out: a quarter is present."""
    world = world_of(FixedClock(availability=ConstantAvailability(rate=0.5), dropout=0.5), 1000)
    cohort = world.gather(1)[0]
    assert 420 < len(cohort.asked) < 580
    assert 190 < len(cohort.present) < 310


# ---------------------------------------------------------------- selection by time


def test_clients_that_fit_the_deadline_are_asked() -> None:
    edge = FixedClock(seconds_per_step=[3, 1, 2, 4], deadline_s=2.5)
    assert world_of(edge, selection=FedCS(fraction=1.0)).gather(1)[0].asked == (1, 2)


def test_in_a_cell_the_wait_for_the_uplink_counts() -> None:
    """All are one metre from their stations: in each cell uploads take the same time, one after another."""
    gain = channel.mean_gain(1.0)
    down = 8 * MB / channel.rate_bps(channel.BANDWIDTH_HZ, channel.CELL_POWER_W, gain, channel.NOISE_W_PER_HZ)
    up = 8 * MB / channel.rate_bps(channel.BANDWIDTH_HZ, channel.CLIENT_POWER_W, gain, channel.NOISE_W_PER_HZ)
    edge = CellClock(
        clients_per_cell=[5, 2],
        cells=2,
        radius_m=0.5,
        seconds_per_sample_param=1e-12,
        deadline_s=float(down + 3.5 * up),
    )
    cohorts = world_of(edge, 7, FedCS(fraction=1.0), model_bytes=MB).gather(1)
    assert [cohort.asked for cohort in cohorts] == [(0, 1, 2), (5, 6)]


def test_predicted_message_sizes_are_those_of_the_last_round() -> None:
    edge = FixedClock(up_mbps=8, seconds_per_step=1e-6, deadline_s=1.5)
    world = world_of(edge, selection=FedCS(fraction=1.0), model_bytes=100)
    assert len(world.gather(1)[0].asked) == 4
    world.spend(1, [0], [[reply(0, 1, up=2 * MB)]], 0)  # 2 s each
    assert world.gather(2) == []


def test_if_no_client_fits_none_is_asked() -> None:
    edge = FixedClock(seconds_per_step=[3, 1, 2, 4], deadline_s=0.5)
    assert world_of(edge, selection=FedCS(fraction=1.0)).gather(1) == []


def test_slow_devices_are_predicted_to_be_slow() -> None:
    edge = FixedClock(
        seconds_per_step=1, deadline_s=2, devices=[Device(share=0.5), Device(share=0.5, compute_scale=3.0)]
    )
    (cohort,) = world_of(edge, selection=FedCS(fraction=1.0)).gather(1)
    fast = np.flatnonzero(edge.deal_devices(4, seed=1)[0] == 1)
    assert cohort.asked == tuple(fast.tolist())


# ---------------------------------------------------------------- deadlines


def test_without_a_deadline_no_client_is_late() -> None:
    assert world_of(FixedClock()).admit(1, [0]) is None


def test_who_is_in_time() -> None:
    admit = world_of(FixedClock(seconds_per_step=[1, 3, 2, 5], deadline_s=2)).admit(1, [0])
    assert admit is not None
    assert admit(0, (0, 1, 2), costs_of(3)).tolist() == [True, False, True]  # just in time is in time
    assert admit(0, (3,), costs_of(1, batches=0)).tolist() == [True]  # the next exchange starts at zero


def test_the_server_waits_for_late_ones_until_the_deadline() -> None:
    world = world_of(FixedClock(seconds_per_step=[1, 3, 2, 5], deadline_s=2.5, compute_power_w=1))
    spent = world.spend(1, [0], [[reply(0, 2, late=(1,))]], 0)
    assert spent.total == 2.5
    assert spent.compute == pytest.approx(1.5)  # the mean over those in time
    # all clients that computed used energy, late or not
    assert dict(zip(spent.ids.tolist(), spent.joules.tolist(), strict=True)) == pytest.approx({0: 1, 1: 3, 2: 2})
    assert world.spend(2, [0], [[reply(0)]], 0).total == 1.0  # if no client is late, the server continues at once


def test_the_deadline_uses_the_actual_times() -> None:
    """With radio, each exchange has its own fading."""
    edge = CellClock(cells=2, deadline_s=0.5, radius_m=2000)
    world, ids = world_of(edge, 20), np.arange(20)
    admit, costs = world.admit(3, [0, 1]), costs_of(20, up=MB)
    assert admit is not None
    decided = [admit(0, tuple(ids.tolist()), costs).tolist() for _ in range(2)]
    for exchange, in_time in enumerate(decided):
        phases = edge.build(20, 1, seed=1).phases(Participants(ids, world.places, costs, np.ones(20), 3, exchange))
        assert in_time == (phases.finish <= 0.5).tolist()
    assert decided[0] != decided[1]
    assert admit(1, tuple(ids.tolist()), costs).tolist() == decided[0]  # the first exchange of another cell


def test_each_exchange_has_one_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Admission, time, energy and the description of a round use the same timeline."""
    computed: list[tuple[int, ...]] = []
    phases = CellRadio.phases

    def count(self: CellRadio, participants: Participants) -> Phases:
        computed.append((participants.exchange, *participants.ids.tolist()))
        return phases(self, participants)

    monkeypatch.setattr(CellRadio, "phases", count)
    world = world_of(CellClock(cells=1, deadline_s=0.3, radius_m=2000), 20)
    admit = world.admit(1, [0])
    assert admit is not None
    exchanges = []
    for asked in (range(20), range(0, 20, 2)):
        in_time = admit(0, tuple(asked), costs_of(len(asked), up=MB))
        split = [tuple(np.array(asked)[which].tolist()) for which in (in_time, ~in_time)]
        assert all(split)  # some of both
        exchanges.append(reply(*split[0], up=MB, late=split[1]))
    spent = world.spend(1, [0], [exchanges], 0)
    described = world.describe(None)
    assert computed == [(0, *range(20)), (1, *range(0, 20, 2))]
    assert spent.ids.tolist() == [*range(20), *range(0, 20, 2)]  # in client order, late or not
    late = {client for exchange in exchanges if exchange.late for client in exchange.late.ids}
    assert [client for client, was in zip(described["clients"], described["late"], strict=True) if was] == sorted(late)


def test_an_unanswered_exchange_is_not_admitted_and_has_no_number() -> None:
    world = world_of(Timed(cells=2, seconds=[1, 2, 3, 5], deadline_s=4))
    admit = world.admit(1, [1])
    assert admit is not None
    for ids in ((2, 3), (2,)):
        admit(0, ids, costs_of(len(ids)))
    spent = world.spend(1, [1], [[reply(2, late=(3,)), reply(), reply(2)]], 0)
    assert spent.total == 4 + 3
    assert world.describe(None)["compute_s"] == [6, 5]


def test_each_round_has_its_own_timelines() -> None:
    world = world_of(Timed(cells=2, seconds=[1, 2, 3, 5], deadline_s=9))
    admit = world.admit(1, [0])
    assert admit is not None
    admit(0, (0,), costs_of(1))
    assert world.spend(1, [0], [[reply(0)]], 0).total == 1
    assert world.spend(2, [0], [[reply(0, batches=4)]], 0).total == 4  # as in a forecast, which has no admission


def test_admission_and_reply_must_have_the_same_clients() -> None:
    world = world_of(Timed(cells=2, seconds=[1, 2, 3, 5], deadline_s=4))
    admit = world.admit(1, [0])
    assert admit is not None
    admit(0, (0,), costs_of(1))
    with pytest.raises(
        ValueError, match=r"expected a reply of the clients \[0\] .*, got \[0, 1\]; an engine must ask about"
    ):
        world.spend(1, [0], [[reply(0, 1)]], 0)


def test_rejected_clients_have_worked() -> None:
    """The server waits for them, and they use energy, but they do not count as late."""
    world = world_of(Timed(cells=1, seconds=[1, 2, 3, 5], compute_power_w=1))
    rejected = Rejected((1, 3), costs_of(2), ("not finite", "norm"))
    spent = world.spend(1, [0], [[reply(0, 2)._replace(missing=(1, 3), rejected=rejected)]], 0)
    assert spent.total == 5
    assert spent.compute == pytest.approx((1 + 2 + 3 + 5) / 4)
    assert (spent.ids.tolist(), spent.joules.tolist()) == ([0, 1, 2, 3], [1, 2, 3, 5])
    assert world.describe(None)["late"] == [False] * 4


def test_a_round_with_only_rejected_answers_takes_time() -> None:
    world = world_of(Timed(cells=1, seconds=[1, 2, 3, 5], retry_s=60))
    rejected = Rejected((1, 2), costs_of(2), ("not finite", "norm"))
    assert world.spend(1, [0], [[reply()._replace(missing=(1, 2), rejected=rejected)]], 0).total == 3


# ---------------------------------------------------------------- time


def test_a_round_takes_as_long_as_its_slowest_cell() -> None:
    world = world_of(Timed(cells=2, seconds=[1, 2, 3, 5]))
    spent = world.spend(1, [0, 1], [[reply(0, 1)], [reply(2, 3)]], 0)
    assert spent.total == world.seconds == 5
    assert spent.compute == pytest.approx((1 + 2 + 3 + 5) / 4)
    assert spent.wait == pytest.approx(5 - 11 / 4)


TWO_ROUNDS = ([[reply(0)], [reply(3)]], [[reply(1)], [reply(2)]])
"""Cell 0 takes 1 and then 6 seconds, cell 1 takes 5 and then 1."""


@pytest.mark.parametrize(("sync", "seconds"), [("round", [5, 6]), ("merge", [5, 2])])
def test_when_cells_wait_for_each_other(sync: str, seconds: list[float]) -> None:
    """In every round: 5 + 6. Only at the merge after the second round: the longer of 1 + 6 and 5 + 1, that is 7."""
    world = world_of(Timed(cells=2, seconds=[1, 6, 1, 5], sync=sync, global_every=2))
    spent = [world.spend(round, [0, 1], replies, 0).total for round, replies in enumerate(TWO_ROUNDS, 1)]
    assert spent == pytest.approx(seconds)
    assert world.seconds == pytest.approx(sum(seconds))
    # after a merge all cells continue from the same time: the next round takes one second
    assert world.spend(3, [0, 1], [[reply(0)], [reply(2)]], 0).total == pytest.approx(1)


def test_time_stands_still_if_a_cell_catches_up() -> None:
    world = world_of(Timed(cells=2, seconds=[1, 6, 1, 5], sync="merge", global_every=9))
    assert world.spend(1, [0, 1], [[reply(0)], [reply(3)]], 0).total == 5
    assert world.spend(2, [0], [[reply(0)]], 0).total == 0  # cell 0 is at 2 seconds now, cell 1 at 5
    assert world.spend(3, [0], [[reply(1)]], 0).total == pytest.approx(3)  # and now at 8


def test_a_merge_takes_time() -> None:
    world = world_of(Timed(cells=2, seconds=[1, 1, 2, 2], backhaul_mbps=8))
    # 1 MB to the centre and back at 8 Mbit/s is a second each way
    assert world.spend(1, [0, 1], [[reply(0)], [reply(2)]], MB).total == pytest.approx(2 + 2)
    assert world.spend(2, [0, 1], [[reply(0)], [reply(2)]], 0).total == pytest.approx(2)


@pytest.mark.parametrize(("deadline_s", "seconds"), [(None, 7.0), (3.0, 3.0)])
def test_a_void_round_takes_the_deadline_or_a_pause(deadline_s: float | None, seconds: float) -> None:
    edge = FixedClock(deadline_s=deadline_s, retry_s=7.0, seconds_per_step=9)
    assert world_of(edge).spend(1, [], [], 0).total == seconds
    assert world_of(edge).spend(1, [0], [[reply()]], 0).total == seconds
    late = world_of(edge).spend(1, [0], [[reply(late=(1,))]], 0)
    assert (late.total, late.compute) == (seconds, 0.0)
    assert late.joules == pytest.approx([5 * 9])


def test_an_empty_cell_waits_for_the_others() -> None:
    world = world_of(Timed(cells=2, seconds=[1, 2, 3, 5], retry_s=60))
    assert world.spend(1, [1], [[reply(3)]], 0).total == 5


# ---------------------------------------------------------------- movement


def test_time_passes_before_clients_follow_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "moves.csv"
    file.write_text("client,time,cell\n0,4,1\n")
    world = world_of(Timed(cells=2, seconds=[3, 3, 3, 3], trace=str(file)))
    for round, cell in ((1, 0), (2, 1)):  # 3 seconds, 6 seconds
        world.spend(round, [0], [[reply(1)]], 0)
        world.move(round)
        assert world.places.cells.tolist() == [cell, 0, 1, 1]


def test_only_some_devices_move() -> None:
    edge = CellClock(cells=4, devices=[Device(share=0.5, mobility_rate=1.0), Device(share=0.5, mobility_rate=0.0)])
    world = world_of(edge, 100)
    before = world.places.cells
    world.move(1)
    mobile = edge.deal_devices(100, seed=1)[1] == 1
    assert ((world.places.cells != before) == mobile).all()


# ---------------------------------------------------------------- several worlds in one process


def rounds_of(edge: ClockOptions) -> Iterator[tuple[object, ...]]:
    """Yield the observable state of a world after each round: cohorts, places and time."""
    world = world_of(edge, 6)
    for round in range(1, 5):
        cohorts = world.gather(round)
        replies = [[reply(*cohort.present, up=MB)] for cohort in cohorts]
        spent = world.spend(round, [cohort.cell for cohort in cohorts], replies, 0)
        world.move(round)
        yield [*cohorts], world.places.cells.tolist(), world.seconds, spent.joules.tolist()


def test_interleaved_worlds_do_not_interfere(tmp_path: Path) -> None:
    """Two traces of mobility and availability with the same names: each world keeps what its files contained first."""

    def edge(number: int) -> CellClock:
        moves, on = tmp_path / "moves.csv", tmp_path / "on.csv"
        moves.write_text(f"client,time,cell\n0,0,{number}\n1,2,{1 - number}\n")
        on.write_text("client,start,end\n" + "\n".join(f"{client},0,1e9" for client in range(number, 6)))
        return CellClock(
            cells=2, trace=str(moves), trace_time="rounds", availability=AvailabilityTrace(file=str(on)), redraw=True
        )

    alone = [list(rounds_of(edge(number))) for number in (0, 1)]
    assert alone[0] != alone[1]
    first = rounds_of(edge(0))
    begun = [next(first)]  # a world reads its files when it is built, before the next line rewrites them
    second = rounds_of(edge(1))
    in_turn = [(next(second), one) for one in first]
    assert [*begun, *(one for _, one in in_turn)] == alone[0]
    assert [*(other for other, _ in in_turn), *second] == alone[1]


# ---------------------------------------------------------------- records and checkpoints


def test_description_of_a_round() -> None:
    world = world_of(Timed(grid=[1, 3], clients_per_cell=[2, 0, 2], seconds=[1, 2, 3, 5], deadline_s=4))
    # in cell 2, client 3 is late, and client 2 waits one second for a second exchange without work
    world.spend(1, [0, 2], [[reply(0, 1)], [reply(2, late=(3,)), reply(2, batches=0)]], 0)
    assert world.describe(None) == {
        "rows": 1,
        "cols": 3,
        "occupancy": [2, 0, 2],
        "clients": [0, 1, 2, 3],
        "cell": [0, 0, 2, 2],
        "down_s": [0, 0, 0, 0],
        "compute_s": [1, 2, 3, 5],
        "wait_s": [0, 0, 1, 0],
        "up_s": [0, 0, 0, 0],
        "finish_s": [1, 2, 4, 5],  # the second exchange of cell 2 began at the deadline
        "late": [False, False, False, True],
        "latency": [2, None, 4],
        "deadline_s": 4,
    }


def test_classes_are_counted_in_the_clients_current_cells() -> None:
    world = world_of(Timed(cells=2, seconds=[1, 2, 3, 5], mobility_rate=1.0))
    counts = np.array([[1, 0], [2, 0], [0, 4], [8, 0]])
    world.spend(1, [0], [[reply(0)]], 0)
    assert world.describe(counts)["classes"] == [[3, 0], [8, 4]]
    world.move(1)
    assert world.describe(counts)["classes"] == [[8, 4], [3, 0]]


def test_description_of_a_void_round() -> None:
    world = world_of(FixedClock(), 3)
    world.spend(1, [], [], 0)
    described = world.describe(None)
    assert (described["clients"], described["finish_s"], described["latency"]) == ([], [], [None])
    assert described["occupancy"] == [3]


def test_a_restored_world_continues() -> None:
    edge = CellClock(cells=3, mobility_rate=0.5, sync="merge", global_every=4, deadline_s=10)
    selection = FedCS(fraction=0.5)
    before = world_of(edge, 30, selection)
    for round in (1, 2):
        before.spend(round, [0, 2], [[reply(0, up=MB)], [reply(29, up=3 * MB)]], 0)
        before.move(round)
    saved = {name: value.clone() for name, value in before.state().items()}
    after = world_of(edge, 30, selection)
    after.restore(saved)
    for world in (before, after):
        world.spend(3, [1], [[reply(15, up=MB)]], 0)
        world.move(3)
    assert after.seconds == before.seconds
    assert after.gather(4) == before.gather(4)
    assert after.places.cells.tolist() == before.places.cells.tolist()
    assert after.places.positions.tolist() == before.places.positions.tolist()


def test_a_restored_world_remembers_message_sizes() -> None:
    edge = FixedClock(up_mbps=8, seconds_per_step=1e-6, deadline_s=1.5)
    before, after = (world_of(edge, selection=FedCS(fraction=1.0), model_bytes=100) for _ in range(2))
    before.spend(1, [0], [[reply(0, 1, up=2 * MB)]], 0)  # 2 s each, above the deadline
    after.restore(before.state())
    assert before.gather(2) == after.gather(2) == []


def test_a_saved_state_is_a_copy() -> None:
    world = world_of(Timed(cells=2, seconds=[1, 2, 3, 5], mobility_rate=1.0))
    saved = world.state()
    world.restore(saved)
    world.spend(1, [0], [[reply(1)]], 0)
    world.move(1)
    assert saved["seconds"].tolist() == [0, 0]
    assert saved["cells"].tolist() == [0, 0, 1, 1]


# ---------------------------------------------------------------- payload_bits


def test_the_clock_may_assume_a_fixed_message_size() -> None:
    """1 Mbit takes one second up at 1 Mbit/s and half a second down at 2, whatever is actually sent."""
    world = world_of(FixedClock(payload_bits=1e6, down_mbps=2, up_mbps=1, seconds_per_step=0.25))
    sent = reply(0, 1, up=7)
    sent = sent._replace(costs=sent.costs._replace(bytes_down=np.array([9, 0]), bytes_up=np.array([7, 0])))
    spent = world.spend(1, [0], [[sent]], 0)
    assert world.describe(None)["finish_s"] == [1.75, 0.25]  # a silent client only computes
    assert spent.total == 1.75
    assert Ledger().charge([sent], spent)["bytes_up"] == 7


def test_a_merge_takes_the_assumed_time_and_counts_real_bytes() -> None:
    edge = CellClock(cells=2, backhaul_mbps=4.0, payload_bits=1e6, seconds_per_sample_param=1e-9)
    plain = CellClock(cells=2, payload_bits=1e6, seconds_per_sample_param=1e-9)
    cells, replies = [0, 1], [[reply(0)], [reply(2)]]
    merged, free = (world_of(clock).spend(1, cells, replies, 1000) for clock in (edge, plain))
    assert merged.total - free.total == pytest.approx(2 * 1e6 / 4e6)
    assert merged.bytes_backhaul == 2 * 2 * 1000
