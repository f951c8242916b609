"""Ranges and halving, in numbers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.sweeps.options import Halving, Range


@pytest.mark.parametrize(
    ("range_", "values"),
    [
        (Range(start=0, stop=1, step=0.25), [0, 0.25, 0.5, 0.75, 1]),
        (Range(start=0.1, stop=0.3, step=0.1), [0.1, 0.2, 0.3]),
        (Range(start=0, stop=1, step=0.4), [0, 0.4, 0.8]),
        (Range(start=3, stop=1, step=-1), [3, 2, 1]),
        (Range(start=1, stop=2, num=3), [1, 1.5, 2]),
        (Range(start=1e-4, stop=1, num=5, log=True), [1e-4, 1e-3, 1e-2, 0.1, 1]),
        (Range(start=8, stop=1, num=4, log=True), [8, 4, 2, 1]),
    ],
)
def test_ranges(range_, values):
    assert range_.values() == values


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.integers(2, 20), st.booleans())
def test_a_range_has_both_ends_and_the_given_number_of_values(start, stop, num, log):
    if start == stop:
        return
    values = Range(start=start, stop=stop, num=num, log=log).values()
    assert len(values) == num
    assert (values[0], values[-1]) == pytest.approx((start, stop), rel=1e-11)
    assert values == sorted(values, reverse=stop < start)


def test_halving():
    halving = Halving(rounds=2, factor=3)
    assert halving.rungs(20) == [2, 6, 18, 20]
    assert halving.rungs(18) == [2, 6, 18]
    assert halving.rungs(2) == [2]
    assert halving.rungs(1) == [1]
    assert [halving.survivors(n) for n in (10, 4, 2, 1)] == [4, 2, 1, 1]
    assert halving.later_rounds([2, 6, 18], 10) == 4 * 4 + 2 * 12
