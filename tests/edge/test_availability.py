"""Availability: distributions of the draws, times of day derived by hand, and traces."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.errors import ConfigError, DataError
from fedge.core.schema import Options, read
from fedge.edge.availability import (
    Availability,
    AvailabilityTrace,
    Available,
    ConstantAvailability,
    DiurnalAvailability,
)

MANY = 100_000
DAY_S = 86_400.0


class Holder(Options, tag=False):
    """Options with an availability, like those of a clock."""

    availability: Availability = ConstantAvailability()


def share(availability: Availability, sim_seconds: float = 0.0, round: int = 1, seed: int = 1) -> float:
    return float(availability.build(MANY, seed)(round, sim_seconds).mean())


def trace(folder: Path, *rows: str, repeat_s: float | None = None) -> Available:
    path = folder / "trace.csv"
    path.write_text("\n".join(["client,start,end", *rows]) + "\n")
    return AvailabilityTrace(file=str(path), repeat_s=repeat_s).build(4, seed=1)


def asked(available: Available, sim_seconds: float) -> list[int]:
    return np.flatnonzero(available(1, sim_seconds)).tolist()


def test_users_choose_by_name() -> None:
    holder = read({"availability": {"name": "constant", "rate": 0.5}}, Holder)
    assert holder.availability == ConstantAvailability(rate=0.5)
    assert read({"availability": "diurnal"}, Holder).availability == DiurnalAvailability()
    raw = {"availability": {"name": "trace", "file": "a.csv", "repeat_s": 10}}
    assert read(raw, Holder).availability == AvailabilityTrace(file="a.csv", repeat_s=10)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"name": "constant", "rate": 0}, r"availability\.rate: expected float > 0"),
        ({"name": "constant", "rate": 1.1}, r"availability\.rate: expected float <= 1"),
        (
            {"name": "diurnal", "mean": 0.7, "amplitude": 0.4},
            r"availability: mean - amplitude.* got mean 0\.7 and amplitude 0\.4",
        ),
        (
            {"name": "diurnal", "mean": 0.3, "amplitude": 0.4},
            r"availability: mean - amplitude.* got mean 0\.3 and amplitude 0\.4",
        ),
        ({"name": "trace", "file": "a.csv", "repeat_s": 0}, r"availability\.repeat_s: expected float > 0"),
        ({"name": "trace"}, r"availability\.file: is required"),
    ],
)
def test_invalid_options(raw: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read({"availability": raw}, Holder)


def test_by_default_all_clients_are_always_available() -> None:
    assert ConstantAvailability().build(MANY, seed=1)(1, 0.0).all()


def test_a_constant_rate_at_any_time() -> None:
    # three standard deviations of a share of 100,000 are 0.0047
    assert share(ConstantAvailability(rate=0.3), 0) == pytest.approx(0.3, abs=0.005)
    assert share(ConstantAvailability(rate=0.3), DAY_S / 3) == pytest.approx(0.3, abs=0.005)


@pytest.mark.parametrize("availability", [ConstantAvailability(rate=0.5), DiurnalAvailability(mean=0.5, amplitude=0)])
def test_rounds_and_seeds_are_independent_and_repeatable(availability: Availability) -> None:
    available, other_seed = availability.build(MANY, seed=1), availability.build(MANY, seed=2)
    first = available(1, 0.0)
    for again in (available, availability.build(MANY, seed=1)):
        assert np.array_equal(first, again(1, 0.0))
    for other in (available(2, 0.0), other_seed(1, 0.0)):
        assert np.mean(first == other) == pytest.approx(0.5, abs=0.005)


def test_a_day_that_all_clients_share() -> None:
    day = DiurnalAvailability(mean=0.5, amplitude=0.3, spread=0)
    hours = {0: 0.5, 6: 0.8, 9: 0.5 + 0.3 * math.sqrt(0.5), 12: 0.5, 18: 0.2, 24: 0.5, 30: 0.8}
    assert {hour: share(day, 3600 * hour) for hour in hours} == pytest.approx(hours, abs=0.005)


def test_a_day_may_be_short() -> None:
    assert share(DiurnalAvailability(mean=0.5, amplitude=0.5, spread=0, period_s=8), 2) == 1
    assert share(DiurnalAvailability(mean=0.5, amplitude=0.5, spread=0, period_s=8), 6) == 0


def test_around_the_globe_the_share_is_always_the_mean() -> None:
    day = DiurnalAvailability(mean=0.4, amplitude=0.3)
    assert [share(day, DAY_S * part) for part in (0, 0.25, 0.6)] == pytest.approx([0.4] * 3, abs=0.005)


def test_days_may_start_within_a_part_of_the_day() -> None:
    # half a day around noon: the mean of the sine over the half that is above zero is 2 / pi
    assert share(DiurnalAvailability(mean=0.5, amplitude=0.5, spread=0.5), 0) == pytest.approx(
        0.5 + 1 / math.pi, abs=0.005
    )


def test_a_client_keeps_its_time_of_day() -> None:
    day = DiurnalAvailability(mean=0.5, amplitude=0.5, period_s=8).build(1000, seed=1)
    half = [np.mean([day(round, 8 * round + at) for round in range(60)], axis=0) for at in (0, 4)]
    # half a day later the probability is one minus the former; with independent phases it would be unrelated
    assert np.corrcoef(half[0], half[1])[0, 1] < -0.9


def test_a_trace_by_hand(tmp_path: Path) -> None:
    found = trace(tmp_path, "2,0,10", "0,5,20", "2,8,12", "2,30,31")
    times = {0: [2], 4.9: [2], 5: [0, 2], 11: [0, 2], 12: [0], 19.9: [0], 20: [], 30.5: [2], 1000: []}
    assert {at: asked(found, at) for at in times} == times


def test_a_trace_that_repeats(tmp_path: Path) -> None:
    found = trace(tmp_path, "1,0,3", "3,8,12", repeat_s=10)
    # client 3's interval extends over the end of the period, so it continues at the start, in the first period too
    times = {0: [1, 3], 2: [1], 3: [], 7: [], 8: [3], 10: [1, 3], 11.5: [1, 3], 12: [1], 108: [3], 112: [1]}
    assert {at: asked(found, at) for at in times} == times


def test_an_interval_as_long_as_the_period_never_ends(tmp_path: Path) -> None:
    found = trace(tmp_path, "1,3,13", repeat_s=10)
    assert all(asked(found, at) == [1] for at in range(30))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(1, 15)), min_size=1, max_size=8),
    st.none() | st.integers(1, 20),
    st.integers(0, 60),
)
def test_an_experiment_uses_the_trace(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int]], repeat: int | None, now: int
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    found = trace(folder, *(f"{client},{start},{start + length}" for client, start, length in rows), repeat_s=repeat)
    moments = [at for at in range(-20, 120) if (at == now if repeat is None else (at - now) % repeat == 0)]
    expected = {client for client, start, length in rows if any(start <= at < start + length for at in moments)}
    assert asked(found, now) == sorted(expected)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("4,0,1", r"line 3: expected client to be a whole number from 0 to 3, got 4"),
        ("1,5,5", r"line 3: expected end to be after start, got 5"),
        ("1,0,late", r"line 3: expected end to be a finite number, got 'late'"),
    ],
)
def test_invalid_traces(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        trace(tmp_path, "0,0,1", row)


def test_a_missing_trace(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.csv cannot be read"):
        AvailabilityTrace(file=str(tmp_path / "none.csv")).build(4, seed=1)


def test_a_run_reads_its_trace_once_at_the_start(tmp_path: Path) -> None:
    before, after = trace(tmp_path, "0,0,1"), trace(tmp_path, "1,0,1")  # the same file, rewritten
    assert (asked(before, 0), asked(after, 0), asked(before, 0)) == ([0], [1], [0])
