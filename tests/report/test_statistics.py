from math import pi, sqrt, tan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.report.statistics import Estimate, average, interval, student, to_target

# Two-sided 95 % and 99 % points as printed in tables of Student's distribution.
PRINTED = [
    (1, 12.706, 63.657),
    (2, 4.303, 9.925),
    (3, 3.182, 5.841),
    (4, 2.776, 4.604),
    (5, 2.571, 4.032),
    (9, 2.262, 3.250),
    (10, 2.228, 3.169),
    (30, 2.042, 2.750),
    (120, 1.980, 2.617),
]


@pytest.mark.parametrize(("freedom", "at_95", "at_99"), PRINTED)
def test_student_agrees_with_printed_tables(freedom: int, at_95: float, at_99: float) -> None:
    assert student(freedom, 0.95) == pytest.approx(at_95, abs=5.1e-4)
    assert student(freedom, 0.99) == pytest.approx(at_99, abs=5.1e-4)


@settings(max_examples=50)
@given(st.floats(0.001, 0.999))
def test_student_has_closed_forms_at_one_and_two_degrees(level: float) -> None:
    assert student(1, level) == pytest.approx(tan(pi * level / 2), rel=1e-10)
    assert student(2, level) == pytest.approx(level * sqrt(2 / (1 - level**2)), rel=1e-10)


def test_student_tends_to_the_normal_distribution() -> None:
    # z + (z^3 + z) / (4 n) with z = 1.959964: the first correction of the normal quantile
    assert student(10_000, 0.95) == pytest.approx(1.959964 + (1.959964**3 + 1.959964) / 40_000, abs=1e-6)


@pytest.mark.parametrize(("freedom", "level"), [(0, 0.95), (1, 0.0), (1, 1.0)])
def test_student_refuses_invalid_arguments(freedom: int, level: float) -> None:
    with pytest.raises(ValueError, match="freedom >= 1 and 0 < level < 1"):
        student(freedom, level)


def test_interval_of_two_seeds() -> None:
    # mean 5, standard deviation sqrt(2), standard error 1, factor 12.706
    found = interval([4.0, 6.0])
    assert (found.mean, found.count) == (5.0, 2)
    assert found.high == pytest.approx(5 + 12.7062, abs=1e-4)
    assert found.low == pytest.approx(5 - 12.7062, abs=1e-4)
    assert found.half == pytest.approx(12.7062, abs=1e-4)


def test_interval_of_three_seeds_at_another_level() -> None:
    # deviations -1, 0, 1: standard deviation 1, error 1/sqrt(3); t(2) at 90 % is 0.9 sqrt(2/0.19) = 2.91999
    found = interval([1.0, 2.0, 3.0], level=0.9)
    assert found.half == pytest.approx(2.91999 / sqrt(3), abs=1e-5)


def test_one_value_has_no_interval() -> None:
    found = interval([0.7])
    assert found == Estimate(0.7, None, None, 1)
    assert found.half is None


def test_no_values_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        interval([])


@settings(max_examples=50)
@given(st.floats(-1e6, 1e6), st.integers(2, 9))
def test_equal_seeds_have_an_interval_of_zero_width(value: float, count: int) -> None:
    assert interval([value] * count) == Estimate(value, value, value, count)


@settings(max_examples=50)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8), st.floats(0.5, 0.98))
def test_more_confidence_is_a_wider_interval(values: list[float], level: float) -> None:
    narrow, wide = interval(values, level), interval(values, level + 0.01)
    assert min(values) <= narrow.mean == wide.mean <= max(values)
    assert wide.low <= narrow.low <= narrow.mean <= narrow.high <= wide.high


def test_to_target_counts_missed_targets_without_averaging_them() -> None:
    found = to_target([10.0, None, 14.0])
    assert (found.reached, found.count) == (2, 3)
    assert found.estimate == Estimate(12.0, 10.0, 14.0, 2, "range")


def test_to_target_without_any_seed_that_reached_it() -> None:
    found = to_target([None, None])
    assert (found.estimate, found.reached, found.count) == (None, 0, 2)


def test_the_mean_over_different_settings_has_no_interval() -> None:
    found = to_target([10.0, None, 14.0], mixed=True)
    assert (found.reached, found.count) == (2, 3)
    assert (found.estimate.mean, found.estimate.low, found.estimate.high) == (12, None, None)


def test_the_average_of_numbers_near_the_largest() -> None:
    assert average([1.6e308, 1.7e308]) == pytest.approx(1.65e308)
    assert average([0.1] * 10) == 0.1
