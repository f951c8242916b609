from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.errors import ConfigError
from fedge.edge.selection import Uniform


@pytest.mark.parametrize(
    ("options", "num_clients", "number"),
    [
        ({}, 100, 10),
        ({"fraction": 0.1}, 9, 1),  # int(0.9) is 0, but somebody must be asked
        ({"fraction": 0.29}, 100, 29),  # as floats, 0.29*100 and 0.57*100 are just below 29 and 57
        ({"fraction": 0.57}, 100, 57),
        ({"fraction": 0.35}, 10, 3),
        ({"fraction": 1.0}, 7, 7),
        ({"count": 4}, 7, 4),
        ({"count": 7}, 7, 7),
    ],
)
def test_how_many(options: dict[str, float], num_clients: int, number: int) -> None:
    selection = Uniform(**options)
    assert selection.number(num_clients) == number
    assert len(selection.select(num_clients, seed=1, round=1)) == number


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"selection\.count: expected at most the 5 clients .*, got 6"):
        Uniform(count=6).number(5)


def test_fraction_and_count_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="fraction and count exclude each other"):
        Uniform(fraction=0.5, count=3)


@given(st.integers(1, 200), st.floats(0.01, 1), st.integers(0, 2**32), st.integers(1, 10_000))
@settings(max_examples=100, deadline=None)
def test_a_cohort_is_distinct_sorted_and_the_same_again(
    num_clients: int, fraction: float, seed: int, round: int
) -> None:
    selection = Uniform(fraction=fraction)
    cohort = selection.select(num_clients, seed, round)
    assert list(cohort) == sorted(set(cohort))
    assert 0 <= cohort[0] <= cohort[-1] < num_clients
    assert all(type(client) is int for client in cohort)
    assert selection.select(num_clients, seed, round) == cohort


def test_rounds_and_seeds_differ() -> None:
    selection = Uniform(count=10)
    cohorts = {selection.select(100, seed, round) for seed in (1, 2) for round in (1, 2, 3)}
    assert len(cohorts) == 6


def test_every_client_has_the_same_chance() -> None:
    counts = Counter(client for round in range(2000) for client in Uniform(count=2).select(8, 1, round))
    # 500 each on average, with a standard deviation of sqrt(2000*(1/4)*(3/4)) = 19.4
    assert len(counts) == 8
    assert all(400 < count < 600 for count in counts.values())
