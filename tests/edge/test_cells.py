"""Radio cells. Rates at the mean gain are computed in test_channel.py, in bit/s."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedge.core.algorithm import Costs
from fedge.core.cell_grid import Grid
from fedge.core.errors import ConfigError, DataError
from fedge.edge import cells as radio
from fedge.edge.cells import CellClock
from fedge.edge.clock import Clock, Participants, Places

MB = 1_000_000
DOWN_100M, DOWN_500M = 322.115e6, 147.679e6
UP_100M, UP_500M = 222.582e6, 52.973e6
STILL = np.array([np.nan])  # no device has its own rate


def participants(
    cells: list[int],
    distances: list[float],
    ids: list[int] | None = None,
    bytes_down: int = MB,
    bytes_up: int = MB,
    samples: int = 0,
    **options: Any,
) -> Participants:
    """Return participants east of their base stations."""
    number = len(cells)
    places = Places(np.array(cells), np.array([[distance, 0.0] for distance in distances]))
    none = np.zeros(number, np.int64)
    costs = Costs(np.full(number, bytes_down), np.full(number, bytes_up), none, none, none, np.full(number, samples))
    who = np.array(range(number) if ids is None else ids)
    told = {"slowness": np.ones(number), "round": 1, "exchange": 0, "guess": True} | options
    return Participants(who, places, costs, **told)


def built(options: CellClock, num_clients: int = 20, seed: int = 1) -> Clock:
    """Return the clock of a run with a model of 56,900 parameters."""
    return options.build(num_clients, 56_900, seed)


# ---------------------------------------------------------------- time


def test_the_download_rate_is_that_of_the_worst_channel_in_the_cell() -> None:
    phases = built(CellClock(cells=2)).phases(participants([0, 0, 1], [100, 500, 100]))
    assert phases.down == pytest.approx([8e6 / DOWN_500M, 8e6 / DOWN_500M, 8e6 / DOWN_100M], rel=1e-5)


def test_uploads_take_turns_in_a_cell_the_shortest_first() -> None:
    phases = built(CellClock(cells=2)).phases(participants([0, 0, 1], [500, 100, 500], bytes_down=0))
    near, far = 8e6 / UP_100M, 8e6 / UP_500M
    assert phases.up == pytest.approx([far, near, far], rel=1e-5)
    assert phases.finish == pytest.approx([near + far, near, far], rel=1e-5)  # no client waits for another cell


def test_finished_clients_send_while_others_compute() -> None:
    """The near client would send faster, but computes 50 times longer: 3.4 s for 240 samples."""
    clock = built(CellClock(cells=1, seconds_per_sample_param=5e-9))
    phases = clock.phases(participants([0, 0], [500, 100], bytes_down=0, samples=240, slowness=np.array([1.0, 50.0])))
    far, near = 0.06828 + 8e6 / UP_500M, 50 * 0.06828 + 8e6 / UP_100M
    assert phases.finish == pytest.approx([far, near], rel=1e-5)


def test_published_mean_compute_time() -> None:
    """Serena (2020): 240 samples, 56,900 parameters, one epoch, 5e-9 s per sample and parameter."""
    one = built(CellClock(cells=1, seconds_per_sample_param=5e-9)).phases(participants([0], [100], samples=240))
    assert one.compute == pytest.approx([0.06828])
    drawn = [
        built(CellClock(cells=1), seed=seed).phases(participants([0] * 20, [100] * 20, samples=240)).compute
        for seed in range(50)
    ]
    # 1000 draws with a standard deviation of a fifth of the mean: the standard error is 0.6% of it
    assert np.mean(drawn) == pytest.approx(0.06828, rel=0.03)
    assert np.std(drawn) == pytest.approx(0.06828 / 5, rel=0.1)


def test_a_client_computes_at_the_same_speed_in_every_round() -> None:
    early, late = (
        built(CellClock(cells=1)).phases(participants([0, 0], [100, 100], ids=[7, 3], samples=9, round=round)).compute
        for round in (1, 9)
    )
    assert early.tolist() == late.tolist()
    assert early[0] != early[1]


def test_fading_differs_by_round_exchange_direction_and_client() -> None:
    clock = built(CellClock(cells=2, cell_power_w=1.0, client_power_w=1.0))

    def faded(round: int, exchange: int) -> list[float]:
        phases = clock.phases(participants([0, 1], [300, 300], guess=False, round=round, exchange=exchange))
        return [*phases.down, *phases.up]

    found = faded(1, 0) + faded(1, 1) + faded(2, 0)
    assert len(set(found)) == len(found)
    assert faded(1, 0) == faded(1, 0)


def test_fading_does_not_depend_on_other_participants() -> None:
    clock = built(CellClock(cells=3))
    all_three = clock.phases(participants([0, 1, 2], [300] * 3, ids=[4, 9, 12], guess=False))
    alone = clock.phases(participants([1], [300], ids=[9], guess=False))
    assert alone.up.tolist() == all_three.up[1:2].tolist()


def test_fading_is_one_on_average() -> None:
    """Signals are so weak here that the rate is proportional to the gain."""
    clock = built(CellClock(cells=1, client_power_w=1e-9, bandwidth_hz=1e9))
    mean = 1 / clock.phases(participants([0], [500])).up
    faded = [1 / clock.phases(participants([0] * 20, [500] * 20, guess=False, round=r)).up for r in range(100)]
    # 2000 exponential draws: the standard error is 2.2% of the mean
    assert np.mean(faded) == pytest.approx(mean[0], rel=0.1)


def test_stronger_stations_have_higher_rates() -> None:
    weak, strong = (
        built(CellClock(cells=1, cell_power_w=power)).phases(participants([0], [500])) for power in (1.0, 10.0)
    )
    assert strong.down < weak.down
    assert strong.up == weak.up


# ---------------------------------------------------------------- places


def test_cells_are_filled_in_order() -> None:
    assert built(CellClock(cells=3), 8).place().cells.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    given = CellClock(grid=[1, 3], clients_per_cell=[1, 0, 3])
    assert built(given, 4).place().cells.tolist() == [0, 2, 2, 2]


def test_25_cells_by_default() -> None:
    assert CellClock().cell_grid == Grid(5, 5)
    assert CellClock(cells=6).cell_grid == CellClock(grid=[2, 3]).cell_grid == Grid(2, 3)


def test_each_cell_has_its_own_radius() -> None:
    places = built(CellClock(cells=2, radius_m=[10, 1000]), 400).place()
    distances = np.hypot(*places.positions.T)
    small, large = distances[:200], distances[200:]
    # uniform in a disc: half of them are beyond 1/sqrt(2) of the radius
    assert 7 < small.max() <= 10
    assert 700 < large.max() <= 1000
    assert np.median(large) == pytest.approx(1000 / 2**0.5, rel=0.1)


def test_only_clients_that_move_get_a_new_position() -> None:
    clock = built(CellClock(cells=4, mobility_rate=0.5), 100)
    before = clock.place()
    after = clock.move(before, STILL.repeat(100), 1, 0.0)
    went = before.cells != after.cells
    assert 20 < went.sum() < 80
    assert ((before.positions != after.positions).all(1) == went).all()
    assert clock.move(before, STILL.repeat(100), 2, 0.0).cells.tolist() != after.cells.tolist()


def test_without_mobility_no_client_moves() -> None:
    clock = built(CellClock(cells=4), 100)
    before = clock.place()
    after = clock.move(before, STILL.repeat(100), 1, 0.0)
    assert after.cells.tolist() == before.cells.tolist()
    assert after.positions.tolist() == before.positions.tolist()


def test_device_classes_have_their_own_rates() -> None:
    clock = built(CellClock(cells=2, mobility_rate=0.0), 4)
    moved = clock.move(clock.place(), np.array([1.0, 0.0, np.nan, 1.0]), 1, 0.0)
    assert moved.cells.tolist() == [1, 0, 1, 0]


def test_neighbours_only() -> None:
    line = CellClock(grid=[1, 5], clients_per_cell=[100, 0, 0, 0, 0], mobility_rate=1.0, move_to="neighbours")
    clock = built(line, 100)
    moved = clock.move(clock.place(), STILL.repeat(100), 1, 0.0)
    assert set(moved.cells.tolist()) == {1}


@pytest.fixture
def _no_fading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(radio, "_draw_fading", lambda num_clients, *draw: np.ones(num_clients))


@pytest.mark.usefixtures("_no_fading")
def test_positions_stay_unless_they_are_redrawn() -> None:
    def ways(redraw: bool) -> list[float]:
        """Return the seconds of download and upload in three exchanges."""
        clock = built(CellClock(cells=1, redraw=redraw))
        moments = [(1, 0), (1, 1), (2, 0)]
        crews = [participants([0], [250], round=round, exchange=exchange, guess=False) for round, exchange in moments]
        found = [clock.phases(each) for each in crews]
        return [way for phases in found for way in (phases.down.item(), phases.up.item())]

    assert len(set(ways(redraw=False))) == 2
    assert len(set(ways(redraw=True))) == 6


@pytest.mark.usefixtures("_no_fading")
def test_redrawn_positions_are_in_the_clients_cell() -> None:
    """In a cell of half a metre, every client counts as one metre away from the station."""
    clock = built(CellClock(cells=2, redraw=True, radius_m=[0.5, 500]))
    near = built(CellClock(cells=2)).phases(participants([0], [1.0]))
    phases = clock.phases(participants([0, 1], [400, 400], guess=False))
    assert phases.down[0] == near.down
    assert phases.down[1] > near.down


def test_a_prediction_does_not_use_future_positions() -> None:
    redrawn, fixed = (
        built(CellClock(cells=1, redraw=redraw)).phases(participants([0], [250])) for redraw in (True, False)
    )
    assert np.array_equal(redrawn, fixed)


# ---------------------------------------------------------------- traces


def write(tmp_path: Path, *rows: str) -> str:
    file = tmp_path / "moves.csv"
    file.write_text("\n".join(["client,time,cell", *rows]))
    return str(file)


def test_a_trace_determines_the_clients_cells(tmp_path: Path) -> None:
    file = write(tmp_path, "0,0,2", "1,1.5,0", "0,3,1")
    clock = built(CellClock(cells=3, trace=file), 3)
    places = clock.place()
    assert places.cells.tolist() == [2, 1, 2]  # client 0 from the start, others as without a trace
    for time, cells in ((1.0, [2, 1, 2]), (1.5, [2, 0, 2]), (100.0, [1, 0, 2])):
        places = clock.move(places, STILL.repeat(3), 1, time)
        assert places.cells.tolist() == cells


def test_times_of_a_trace_may_be_rounds(tmp_path: Path) -> None:
    clock = built(CellClock(cells=2, trace=write(tmp_path, "0,2,1"), trace_time="rounds"), 2)
    places = clock.place()
    assert clock.move(places, STILL.repeat(2), 1, 1e9).cells.tolist() == [0, 1]
    assert clock.move(places, STILL.repeat(2), 2, 0.0).cells.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (["5,0,1"], r"line 2: expected client to be a whole number from 0 to 3, got 5"),
        (["0,0,1", "0,1,3"], r"line 3: expected cell to be a whole number from 0 to 1, got 3"),
        (["0,5,1", "0,4,0"], r"line 3: expected time to be no earlier than in the row before of the same client"),
    ],
)
def test_an_invalid_trace_is_refused(tmp_path: Path, rows: list[str], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        CellClock(cells=2, trace=write(tmp_path, *rows)).check(4)


def test_a_run_reads_its_trace_once_at_the_start(tmp_path: Path) -> None:
    options = CellClock(cells=2, trace=write(tmp_path, "0,0,1"))
    before = built(options, 2)
    write(tmp_path, "1,0,0")
    after = built(options, 2)
    assert [clock.place().cells.tolist() for clock in (before, after, before)] == [[1, 1], [0, 0], [1, 1]]


# ---------------------------------------------------------------- merges


def test_when_cells_merge_and_when_they_wait() -> None:
    by_round, by_merge = (CellClock(global_every=3, sync=sync) for sync in ("round", "merge"))
    assert [by_round.merges(round) for round in range(1, 7)] == [False, False, True] * 2
    assert [by_round.waits(round) for round in range(1, 4)] == [True] * 3
    assert [by_merge.waits(round) for round in range(1, 4)] == [False, False, True]


def test_a_merge_includes_both_directions_of_the_backhaul() -> None:
    assert CellClock(backhaul_mbps=8.0).backhaul_s(MB) == pytest.approx(2.0)  # a second each way, all at once
    assert CellClock().backhaul_s(MB) == 0.0


# ---------------------------------------------------------------- invalid options


def test_more_cells_than_clients_are_refused() -> None:
    CellClock(cells=4).check(4)
    with pytest.raises(ConfigError, match=r"edge\.cells: expected at most one cell per client \(3\), got 4; lower"):
        CellClock(cells=4).check(3)


@pytest.mark.parametrize(
    ("counts", "problem"), [([4, 4], "each of 3 cells, got 2"), ([4, 4, 3], "add up to the 10 clients, got 11")]
)
def test_clients_per_cell_must_add_up_to_all_clients(counts: list[int], problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"edge\.clients_per_cell: .*{problem}"):
        CellClock(cells=3, clients_per_cell=counts).check(10)


def test_a_list_of_speeds_needs_one_per_client() -> None:
    with pytest.raises(ConfigError, match=r"edge\.seconds_per_sample_param: expected one .* 4 clients, got 2"):
        CellClock(cells=2, seconds_per_sample_param=[1e-9, 2e-9]).check(4)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"cells": 6, "grid": [2, 2]}, r"grid \[2, 2\] has 4 cells, but cells is 6"),
        ({"cells": 3, "radius_m": [1.0, 2.0]}, "radius_m: expected one value, or one for each of 3 cells, got 2"),
        ({"trace": "moves.csv", "mobility_rate": 0.1}, "trace and mobility_rate exclude each other"),
    ],
)
def test_options_that_exclude_each_other(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        CellClock(**options)
