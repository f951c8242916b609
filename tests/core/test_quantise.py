import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.errors import StreamError
from fedge.core.quantise import quantise_exponential, quantise_uniform, restore_exponential, restore_uniform


@st.composite
def vectors(draw):
    """Magnitudes between two scales of 1e-35 to 1e5, of one sign or both, some of them zero."""
    size = draw(st.integers(1, 300))
    low, high = sorted(draw(st.tuples(st.floats(-35, 5), st.floats(-35, 5))))
    share_negative, share_zero = draw(st.sampled_from([0, 0.5, 1])), draw(st.sampled_from([0, 0.3, 1]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = 10 ** rng.uniform(low, high, size) * np.where(rng.random(size) < share_negative, -1, 1)
    return np.where(rng.random(size) < share_zero, 0, values).astype(np.float32)


def test_uniform_by_hand():
    # Positive, 1 to 128: a step is 1, and 2.4 lies 1.4 steps up. Negative, -127 to -63.5: a step is 0.5, and
    # -100.2 lies 53.6 steps up, which becomes 54: -127 + 27 = -100.
    values = np.array([1, 2.4, 128, -63.5, -100.2, -127], np.float32)
    codes, bounds = quantise_uniform(values)
    assert codes.tolist() == [128, 129, 255, 127, 54, 0]
    assert bounds.tolist() == [-127, -63.5, 1, 128]
    assert restore_uniform(codes, bounds).tolist() == [1, 2, 128, -63.5, -100, -127]


def test_uniform_of_equal_values_is_exact():
    values = np.array([0.1, -0.3, 0.1, -0.3], np.float32)
    assert np.array_equal(restore_uniform(*quantise_uniform(values)), values)


def test_uniform_of_nothing():
    codes, bounds = quantise_uniform(np.zeros(0, np.float32))
    assert bounds.tolist() == [0, 0, 0, 0]
    assert len(restore_uniform(codes, bounds)) == 0


@settings(max_examples=150, deadline=None)
@given(vectors())
def test_uniform_errs_by_half_a_step_and_keeps_signs(values):
    codes, bounds = quantise_uniform(values)
    decoded = restore_uniform(codes, bounds)
    for side in (values < 0, values >= 0):
        part = values[side].astype(np.float64)
        if len(part):
            half_step = (part.max() - part.min()) / 254
            assert np.abs(decoded[side] - part).max() <= half_step * (1 + 1e-9)
            assert decoded[side][part.argmin()] == part.min()
            assert decoded[side][part.argmax()] == part.max()
    assert np.array_equal(codes < 128, values < 0)


def test_exponential_by_hand():
    # From 1 down to 2^-126 the base is 2: 3/16 = 2^-2.415 becomes 2^-2, and 0.7 = 2^-0.515 becomes 2^-1.
    values = np.array([1, 3 / 16, -0.7, 0, -(2.0**-126)], np.float32)
    codes, bounds = quantise_exponential(values)
    assert codes.tolist() == [129, 131, 2, 0, 127]
    assert bounds.tolist() == [2.0**-126, 1]
    assert restore_exponential(codes, bounds) == pytest.approx([1, 0.25, -0.5, 0, -(2.0**-126)], rel=1e-12, abs=0)


@pytest.mark.parametrize("values", [[], [0, 0], [0.3], [-70_000], [2.5, -2.5, 0, 2.5]])
def test_exponential_of_at_most_one_magnitude_is_exact(values):
    values = np.array(values, np.float32)
    assert np.array_equal(restore_exponential(*quantise_exponential(values)), values)


def test_exponential_takes_tiny_magnitudes_for_zero():
    codes, bounds = quantise_exponential(np.array([1e-50, -1e-39, 2.0]))
    assert codes.tolist() == [0, 0, 129]
    assert bounds.tolist() == [2, 2]


@settings(max_examples=200, deadline=None)
@given(vectors())
def test_exponential_errs_by_half_a_step_of_the_base(values):
    decoded = restore_exponential(*quantise_exponential(values))
    assert np.array_equal(np.sign(decoded), np.sign(values))
    exact = np.abs(values[values != 0]).astype(np.float64)
    if len(exact):
        half_step = np.log(exact.max() / exact.min()) / 126 / 2
        off = np.abs(np.log(np.abs(decoded[decoded != 0]) / exact))
        assert off.max() <= half_step + 1e-9
        assert np.abs(decoded).max() == exact.max()


@pytest.mark.parametrize(
    "bounds",
    [
        [-1, -2, 1, 2],
        [-2, -1, 2, 1],
        [-2, 1, 1, 2],
        [-np.inf, -1, 1, 2],
        [-2, -1, 1, np.inf],
        [0, 0, 0, np.nan],
    ],
)
def test_impossible_bounds_of_uniform_are_refused(bounds):
    with pytest.raises(StreamError, match="bounds of UniQ"):
        restore_uniform(np.zeros(1, np.uint8), np.array(bounds, np.float32))


@pytest.mark.parametrize("bounds", [[2, 1], [0, 1], [-1, 1], [1, np.inf], [np.nan, np.nan]])
def test_impossible_bounds_of_exponential_are_refused(bounds):
    with pytest.raises(StreamError, match="bounds of ExpQ"):
        restore_exponential(np.zeros(1, np.uint8), np.array(bounds, np.float32))


def test_unused_code_of_exponential_is_refused():
    with pytest.raises(StreamError, match="128"):
        restore_exponential(np.array([129, 128], np.uint8), np.array([1, 2], np.float32))
