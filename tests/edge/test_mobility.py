"""Clients that move between cells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.cell_grid import Grid
from fedge.core.errors import DataError
from fedge.core.keys import generator
from fedge.edge.mobility import MobilityTrace, destinations, move

grids = st.builds(Grid, st.integers(1, 6), st.integers(1, 6))
ways = st.sampled_from(["anywhere", "neighbours"])


def test_inverse_distances_on_five_by_five() -> None:
    # From (1, 1): 1/d for adjacent, diagonal, two straight on and the far corner, over their sum 12.69281508.
    chances = destinations(Grid(5, 5), "anywhere")[6].reshape(5, 5)
    assert chances[1, 0] == pytest.approx(1 / 12.69281508, rel=1e-8)
    for cell in ((0, 1), (1, 0), (1, 2), (2, 1)):
        assert chances[cell] == pytest.approx(0.07878473, abs=1e-8)
    for cell in ((0, 0), (0, 2), (2, 0), (2, 2)):
        assert chances[cell] == pytest.approx(0.05570922, abs=1e-8)
    assert chances[1, 3] == pytest.approx(0.03939236, abs=1e-8)
    assert chances[3, 1] == pytest.approx(0.03939236, abs=1e-8)
    assert chances[4, 4] == pytest.approx(0.01856974, abs=1e-8)
    assert chances[1, 1] == 0


def test_neighbours_are_equally_likely() -> None:
    # 0 1 2
    # 3 4 5
    chances = destinations(Grid(2, 3), "neighbours")
    assert chances[0] == pytest.approx([0, 1 / 3, 0, 1 / 3, 1 / 3, 0])
    assert chances[4] == pytest.approx([1 / 5, 1 / 5, 1 / 5, 1 / 5, 0, 1 / 5])


@settings(max_examples=40, deadline=None)
@given(grids, ways)
def test_probabilities_of_destinations_add_up_to_one(grid: Grid, move_to: str) -> None:
    chances = destinations(grid, move_to)
    assert chances.shape == (grid.num_cells, grid.num_cells)
    assert np.all(np.diag(chances) == 0)
    assert chances.sum(1) == pytest.approx(np.full(grid.num_cells, grid.num_cells > 1, float))


@settings(max_examples=60, deadline=None)
@given(grids, ways, st.integers(0, 60), st.integers(0, 10**6))
def test_clients_move_to_possible_destinations_or_stay(grid: Grid, move_to: str, num_clients: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, grid.num_cells, num_clients)
    rates = rng.choice([0.0, 0.5, 1.0], num_clients)
    start, chances = cells.copy(), destinations(grid, move_to)
    after = move(cells, rates, chances, generator(seed, "test"))

    assert np.array_equal(cells, start)  # not changed in place
    assert after.shape == cells.shape  # no client is lost or duplicated
    moved = after != cells
    assert np.all(chances[cells[moved], after[moved]] > 0)
    assert not np.any(moved[rates == 0])
    assert np.all(moved[rates == 1]) or grid.num_cells == 1
    assert np.array_equal(move(cells, rates, chances, generator(seed, "test")), after)


def test_one_rate_for_all() -> None:
    cells, chances = np.repeat(np.arange(6), 50), destinations(Grid(2, 3), "anywhere")
    assert np.array_equal(move(cells, 0.0, chances, generator(1, "test")), cells)
    assert np.all(move(cells, 1.0, chances, generator(1, "test")) != cells)


def test_in_a_single_cell_no_client_moves() -> None:
    cells = np.zeros(20, int)
    chances = destinations(Grid(1, 1), "neighbours")
    assert chances.tolist() == [[0]]
    assert np.array_equal(move(cells, 1.0, chances, generator(1, "test")), cells)


@pytest.mark.parametrize(
    ("move_to", "degrees", "bound"),
    [("anywhere", 24, 51.2), ("neighbours", 8, 26.1)],  # chi-squared quantiles of 99.9%
)
def test_frequencies_of_moves_follow_the_formula(move_to: str, degrees: int, bound: float) -> None:
    # From (1, 1) of a 5 x 5 grid, with a quarter moving: 24 or 8 destinations, and staying.
    num_clients, rate = 100_000, 0.25
    chances = destinations(Grid(5, 5), move_to)
    expected = num_clients * rate * chances[6]
    expected[6] = num_clients * (1 - rate)
    after = move(np.full(num_clients, 6), rate, chances, generator(1, "test"))
    found = np.bincount(after, minlength=25)
    possible = expected > 0
    assert np.count_nonzero(possible) == degrees + 1
    assert found[~possible].sum() == 0
    assert np.sum((found - expected)[possible] ** 2 / expected[possible]) < bound


def test_groups_move_at_their_own_rates() -> None:
    # Half of 20,000 clients at 0.1, half at 0.6; standard deviations sqrt(10,000 p (1 - p)) are 30 and 49.
    rates = np.repeat([0.1, 0.6], 10_000)
    cells = np.tile(np.arange(4), 5000)
    moved = move(cells, rates, destinations(Grid(2, 2), "neighbours"), generator(1, "test")) != cells
    assert abs(moved[:10_000].sum() - 1000) < 4 * 30
    assert abs(moved[10_000:].sum() - 6000) < 4 * 49


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "trace.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_client_stays_until_its_next_line(tmp_path: Path) -> None:
    text = "client,time,cell\n1,0.5,2\n0,2,1\n1,2,0\n1,1e1,3\n0,2,3\n"
    trace = MobilityTrace.read(write(tmp_path, text), num_clients=3, num_cells=4)
    start = np.array([0, 1, 2])
    expected = {
        0: [0, 1, 2],
        0.49: [0, 1, 2],
        0.5: [0, 2, 2],
        1.99: [0, 2, 2],
        2: [3, 0, 2],  # the last of two lines of client 0 for the same time wins
        9.9: [3, 0, 2],
        10: [3, 3, 2],
        1e9: [3, 3, 2],
    }
    assert {time: trace.cells_at(time, start).tolist() for time in expected} == expected
    assert start.tolist() == [0, 1, 2]


def test_columns_and_lines_may_be_in_any_order(tmp_path: Path) -> None:
    # Only the times of a single client must not decrease.
    text = '\ufeff"cell", speed ,time,client\r\n1,3.5,4,1\r\n\r\n0,fast,1,0\r\n'
    trace = MobilityTrace.read(write(tmp_path, text), 2, 2)
    assert trace.cells_at(1, np.array([1, 0])).tolist() == [0, 0]
    assert trace.cells_at(4, np.array([1, 0])).tolist() == [0, 1]


lines = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 20), st.integers(0, 8)), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(lines, st.integers(0, 21))
def test_the_last_line_up_to_now_counts(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[int, int, int]], now: int
) -> None:
    lines = sorted(lines, key=lambda line: line[1])
    text = "client,time,cell\n" + "".join(f"{client},{time / 2},{cell}\n" for client, time, cell in lines)
    trace = MobilityTrace.read(write(tmp_path_factory.mktemp("trace"), text), 5, 9)
    expected = [8, 7, 6, 5, 4]
    for client, time, cell in lines:
        if time <= now:
            expected[client] = cell
    assert trace.cells_at(now / 2, np.array([8, 7, 6, 5, 4])).tolist() == expected
    # `before` may also be the cells at an earlier time.
    earlier = trace.cells_at(now / 4, np.array([8, 7, 6, 5, 4]))
    assert trace.cells_at(now / 2, earlier).tolist() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,time,cell\n0,1,0\n3,1,0\n", "line 3: expected client to be a whole number from 0 to 2, got 3"),
        ("client,time,cell\n-1,1,0\n", "line 2: expected client to be a whole number from 0 to 2, got -1"),
        ("client,time,cell\n0.5,1,0\n", "line 2: expected client to be a whole number from 0 to 2, got 0.5"),
        ("client,time,cell\n\n0,1,4\n", "line 3: expected cell to be a whole number from 0 to 3, got 4"),
        (
            "client,time,cell\n0,2,0\n1,9,1\n0,1.5,1\n",
            "line 4: expected time to be no earlier than in the row before of the same client, got 1.5",
        ),
        ("client,time,cell\n0,soon,0\n", "line 2: expected .*finite number.*'soon'"),
        ("client,time,cell\n0,nan,0\n", "line 2: expected .*finite number.*'nan'"),
        ("client,time,cell\n0,inf,0\n", "line 2: expected .*finite number.*'inf'"),
        ("client,time,cell\n0,1\n", "line 2: expected 3 fields as in the header, got 2"),
        ("client,when,cell\n0,1,0\n", "line 1: expected a header with client, time, cell; .* 'time'"),
        ("0,1,0\n", "line 1: expected a header with client, time, cell; .* 'client'"),
        ("", "expected a header with client, time, cell"),
        ("client,time,cell\n", "expected at least one row below the header, got none"),
        (b"client,time,cell\n0,1,\xff\n", "UTF-8"),
    ],
)
def test_bad_traces(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(DataError, match=message) as caught:
        MobilityTrace.read(path, num_clients=3, num_cells=4)
    assert str(caught.value).startswith(str(path))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be read: Is a directory"):
        MobilityTrace.read(tmp_path, 3, 4)
    with pytest.raises(DataError, match=r"trace\.csv cannot be read: No such file"):
        MobilityTrace.read(tmp_path / "trace.csv", 3, 4)
