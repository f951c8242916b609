from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.algorithm import Phases
from fedge.core.errors import ConfigError
from fedge.edge.selection import FedCS, Uniform


def everybody(num_clients: int) -> np.ndarray:
    return np.arange(num_clients)


@pytest.mark.parametrize(
    ("options", "num_clients", "number"),
    [
        ({}, 100, 10),
        ({"fraction": 0.1}, 15, 2),  # 1.5 rounded up
        ({"fraction": 0.1, "rounding": "down"}, 15, 1),
        ({"fraction": 0.1, "rounding": "down"}, 9, 1),  # 0.9 rounded down is 0, but at least one client must be asked
        ({"fraction": 0.29, "rounding": "down"}, 100, 29),  # as floats, 0.29*100 is just below 29
        ({"fraction": 0.55}, 100, 55),  # as floats, 0.55*100 is just above 55
        ({"fraction": 0.29}, 100, 29),  # as floats, 0.29*100 and 0.57*100 are just below 29 and 57
        ({"fraction": 0.57}, 100, 57),
        ({"fraction": 0.35}, 10, 4),
        ({"fraction": 1.0}, 7, 7),
        ({"count": 4}, 7, 4),
        ({"count": 7}, 7, 7),
    ],
)
def test_number_of_clients(options: dict[str, float], num_clients: int, number: int) -> None:
    selection = Uniform(**options)
    assert selection.number(num_clients) == number
    assert len(selection.select(everybody(num_clients), number, seed=1, round=1, cell=0)) == number


@pytest.mark.parametrize(
    ("options", "num_clients", "number"),
    [
        ({}, 10, 1),
        ({}, 11, 2),  # the same rule as without cells
        ({"rounding": "down"}, 11, 1),
        ({"rounding": "down"}, 9, 1),
        ({"rounding": "down"}, 0, 0),
        ({"fraction": 0.3}, 10, 3),
        ({"fraction": 0.07}, 100, 7),  # as floats, 0.07*100 is just above 7
        ({"fraction": 0.01}, 3, 1),
        ({"fraction": 0.5}, 0, 0),
        ({"count": 4}, 7, 4),
        ({"count": 4}, 3, 3),
        ({"count": 4}, 0, 0),
    ],
)
def test_number_of_clients_in_a_cell(options: dict[str, float], num_clients: int, number: int) -> None:
    selection = Uniform(**options)
    assert selection.number_in_cell(num_clients) == number
    assert len(selection.select(everybody(num_clients), number, seed=1, round=1, cell=3)) == number


def test_a_count_above_the_number_of_clients_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"selection\.count: expected at most the 5 clients .*, got 6"):
        Uniform(count=6).check(5)
    assert Uniform(count=6).number(5) == 5  # on a network, where more may join


def test_fraction_and_count_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="fraction and count exclude each other"):
        Uniform(fraction=0.5, count=3)


@given(
    st.sets(st.integers(0, 200)), st.integers(0, 200), st.integers(0, 2**32), st.integers(1, 10_000), st.integers(0, 9)
)
@settings(max_examples=100, deadline=None)
def test_a_cohort_is_available_distinct_sorted_and_repeatable(
    able: set[int], number: int, seed: int, round: int, cell: int
) -> None:
    clients = np.array(sorted(able), np.int64)
    cohort = Uniform().select(clients, number, seed, round, cell).tolist()
    assert cohort == sorted(set(cohort))
    assert set(cohort) <= able
    assert len(cohort) == min(number, len(able))
    assert Uniform().select(clients, number, seed, round, cell).tolist() == cohort


def test_rounds_seeds_and_cells_differ() -> None:
    cohorts = {
        tuple(Uniform().select(everybody(100), 10, seed, round, cell).tolist())
        for seed in (1, 2)
        for round in (1, 2, 3)
        for cell in (0, 1)
    }
    assert len(cohorts) == 12


def test_every_client_has_the_same_chance() -> None:
    counts = Counter(client for round in range(2000) for client in Uniform().select(everybody(8), 2, 1, round, 0))
    # 500 each on average, with a standard deviation of sqrt(2000*(1/4)*(3/4)) = 19.4
    assert len(counts) == 8
    assert all(400 < count < 600 for count in counts.values())


# ---------------------------------------------------------------- by time


def in_turn(compute: dict[int, float], up: float = 1.0, down: float = 0.0) -> Callable[[np.ndarray], Phases]:
    """Predict clients with these compute times that send one after another, in the given order."""

    def predict(ids: np.ndarray) -> Phases:
        ready = np.array([down + compute[client] for client in ids.tolist()])
        finish: list[float] = []
        for at in ready.tolist():
            finish.append(max(at, finish[-1] if finish else 0.0) + up)
        return Phases(np.full(len(ids), down), ready - down, np.full(len(ids), up), np.array(finish))

    return predict


SECONDS = {3: 9.0, 5: 0.5, 6: 2.0, 8: 0.0}


@pytest.mark.parametrize(
    ("deadline_s", "fitting"),
    [
        (0.9, []),
        (1.0, [8]),  # just in time is in time
        (1.9, [8]),  # client 5 alone would be ready by then, but has to wait for the channel
        (2.0, [5, 8]),
        (3.0, [5, 6, 8]),
        (9.9, [5, 6, 8]),
        (10.0, [3, 5, 6, 8]),
    ],
)
def test_the_fastest_clients_that_fit_are_asked(deadline_s: float, fitting: list[int]) -> None:
    chosen = np.array(sorted(SECONDS))
    assert FedCS().fit(chosen, deadline_s, in_turn(SECONDS)).tolist() == fitting


def test_the_download_counts_too() -> None:
    assert FedCS().fit(np.array([5, 8]), 2.0, in_turn(SECONDS, down=0.5)).tolist() == [8]


@given(st.lists(st.floats(0, 10), min_size=1, max_size=12), st.floats(0.1, 3), st.floats(0.01, 40))
@settings(max_examples=60, deadline=None)
def test_fitting_clients_are_in_time_and_one_more_is_not(seconds: list[float], up: float, deadline_s: float) -> None:
    compute = dict(enumerate(seconds))
    predict = in_turn(compute, up)
    by_speed = sorted(compute, key=lambda client: (compute[client] + up, client))
    number = len(FedCS().fit(np.array(list(compute)), deadline_s, predict))
    assert number == 0 or predict(np.array(by_speed[:number])).finish.max() <= deadline_s
    assert number == len(seconds) or predict(np.array(by_speed[: number + 1])).finish.max() > deadline_s


def test_an_empty_cohort_stays_empty() -> None:
    assert FedCS().fit(np.zeros(0, np.int64), 5.0, in_turn({})).tolist() == []


def test_only_selection_by_time_needs_a_deadline() -> None:
    assert (Uniform().needs_deadline, FedCS().needs_deadline) == (False, True)
    chosen = np.array(sorted(SECONDS))
    assert Uniform().fit(chosen, 0.1, in_turn(SECONDS)) is chosen
