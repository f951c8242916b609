import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.codecs.quantise import FLOAT32, ExpQ, Fp16, Qsgd, UniQ
from fedge.core.errors import ConfigError, StreamError

ALL = [FLOAT32, Fp16(), UniQ(), ExpQ(), Qsgd(2), Qsgd(4), Qsgd(8)]
RNG = np.random.default_rng(0)  # for quantisers that draw no random numbers
SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def there_and_back(quantiser, values, dtype=DOUBLE, rng=RNG):
    codes, bounds = quantiser.quantise(values, rng)
    return quantiser.restore(codes, bounds, len(values), dtype)


@st.composite
def vectors(draw):
    """Magnitudes between two scales of 1e-35 to 1e5, of one sign or both, some of them zero."""
    size = draw(st.integers(1, 300))
    low, span = draw(st.floats(-35, 5)), draw(st.floats(0, 1))
    high = low + span * (5 - low)
    share_negative, share_zero = draw(st.sampled_from([0, 0.5, 1])), draw(st.sampled_from([0, 0.3, 1]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = 10 ** rng.uniform(low, high, size) * np.where(rng.random(size) < share_negative, -1, 1)
    return np.where(rng.random(size) < share_zero, 0, values).astype(np.float32)


def test_uniform_by_hand():
    # Positive, 1 to 128: a step is 1, and 2.4 lies 1.4 steps up. Negative, -127 to -63.5: a step is 0.5, and
    # -100.2 lies 53.6 steps up, which becomes 54: -127 + 27 = -100.
    values = np.array([1, 2.4, 128, -63.5, -100.2, -127], np.float32)
    codes, bounds = UniQ().quantise(values, RNG)
    assert codes.tolist() == [128, 129, 255, 127, 54, 0]
    assert bounds.tolist() == [-127, -63.5, 1, 128]
    assert UniQ().restore(codes, bounds, len(codes), DOUBLE).tolist() == [1, 2, 128, -63.5, -100, -127]


def test_uniform_of_equal_values_is_exact():
    values = np.array([0.1, -0.3, 0.1, -0.3], np.float32)
    assert np.array_equal(there_and_back(UniQ(), values), values)


def test_uniform_of_an_empty_vector():
    codes, bounds = UniQ().quantise(np.zeros(0, np.float32), RNG)
    assert bounds.tolist() == [0, 0, 0, 0]
    assert len(UniQ().restore(codes, bounds, len(codes), DOUBLE)) == 0


@settings(max_examples=80, deadline=None)
@given(vectors())
def test_uniform_errs_by_half_a_step_and_keeps_signs(values):
    codes, bounds = UniQ().quantise(values, RNG)
    decoded = UniQ().restore(codes, bounds, len(codes), DOUBLE)
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
    codes, bounds = ExpQ().quantise(values, RNG)
    assert codes.tolist() == [129, 131, 2, 0, 127]
    assert bounds.tolist() == [2.0**-126, 1]
    assert ExpQ().restore(codes, bounds, len(codes), DOUBLE) == pytest.approx(
        [1, 0.25, -0.5, 0, -(2.0**-126)], rel=1e-12, abs=0
    )


@pytest.mark.parametrize("values", [[], [0, 0], [0.3], [-70_000], [2.5, -2.5, 0, 2.5]])
def test_exponential_of_at_most_one_magnitude_is_exact(values):
    values = np.array(values, np.float32)
    assert np.array_equal(there_and_back(ExpQ(), values), values)


def test_exponential_treats_tiny_magnitudes_as_zero():
    codes, bounds = ExpQ().quantise(np.array([1e-45, -1e-39, 2.0], np.float32), RNG)
    assert codes.tolist() == [0, 0, 129]
    assert bounds.tolist() == [2, 2]


@settings(max_examples=100, deadline=None)
@given(vectors())
def test_exponential_errs_by_half_a_step_of_the_base(values):
    decoded = there_and_back(ExpQ(), values)
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
    with pytest.raises(StreamError, match="UniQ bounds"):
        UniQ().restore(np.zeros(1, np.uint8), np.array(bounds, np.float32), 1, SINGLE)


@pytest.mark.parametrize("bounds", [[2, 1], [0, 1], [-1, 1], [1, np.inf], [np.nan, np.nan]])
def test_impossible_bounds_of_exponential_are_refused(bounds):
    with pytest.raises(StreamError, match="ExpQ bounds"):
        ExpQ().restore(np.zeros(1, np.uint8), np.array(bounds, np.float32), 1, SINGLE)


def test_unused_code_of_exponential_is_refused():
    with pytest.raises(StreamError, match="128"):
        ExpQ().restore(np.array([129, 128], np.uint8), np.array([1, 2], np.float32), 2, SINGLE)


# ---------------------------------------------------------------- all


@pytest.mark.parametrize("quantiser", ALL, ids=lambda q: q.name)
@settings(max_examples=20, deadline=None)
@given(values=vectors())
def test_the_numbers_of_bytes_and_bounds_match_the_declaration(quantiser, values):
    codes, bounds = quantiser.quantise(values, RNG)
    assert codes.dtype == np.uint8
    assert len(codes) == -(-len(values) * quantiser.bits // 8)
    assert (bounds.dtype, len(bounds)) == (SINGLE, quantiser.num_bounds)


@pytest.mark.parametrize("quantiser", ALL, ids=lambda q: q.name)
def test_types_empty_and_zero(quantiser):
    for dtype in (SINGLE, DOUBLE):
        assert there_and_back(quantiser, np.float32([1, -2]), dtype).dtype == dtype
        assert there_and_back(quantiser, np.zeros(0, np.float32), dtype).shape == (0,)
        assert there_and_back(quantiser, np.zeros(5, np.float32), dtype).tolist() == [0] * 5
        assert there_and_back(quantiser, -np.zeros(5, np.float32), dtype).tolist() == [0] * 5


@pytest.mark.parametrize("quantiser", ALL, ids=lambda q: q.name)
@settings(max_examples=25, deadline=None)
@given(values=vectors())
def test_inputs_are_unchanged_and_zeros_kept(quantiser, values):
    before = values.copy()
    decoded = there_and_back(quantiser, values)
    assert np.array_equal(values, before)
    assert not decoded[values == 0].any()


# ---------------------------------------------------------------- float32 and fp16


@given(values=vectors())
@settings(max_examples=40, deadline=None)
def test_float32_is_exact(values):
    assert np.array_equal(there_and_back(FLOAT32, values), values)


def test_half_by_hand():
    # 3 lies in [2, 4) = [2^14, 2^15) units of 2^-13. Halves have 11 bits: there they are 16 units apart, 2^-9.
    # So 2.001, 0.512 of a step above 2, becomes 2 + 1/512.
    codes, bounds = Fp16().quantise(np.float32([3, 2.001, -0.5]), RNG)
    assert bounds.tolist() == [2.0**-13]
    assert codes.view("<f2").tolist() == [3 * 2**13, 2**14 + 16, -(2.0**12)]
    assert Fp16().restore(codes, bounds, 3, DOUBLE).tolist() == [3, 2 + 1 / 512, -0.5]


@given(values=vectors())
@settings(max_examples=80, deadline=None)
def test_half_errs_by_half_of_its_last_bit(values):
    decoded = there_and_back(Fp16(), values)
    exact = values.astype(np.float64)
    # below 2^-14 units halves are 2^-24 units apart, and a unit is at most 2^-14 of the largest value
    allowed = np.maximum(np.abs(exact) * 2.0**-11, np.abs(exact).max() * 2.0**-14 * 2.0**-25)
    assert (np.abs(decoded - exact) <= np.maximum(allowed, 2.0**-126 * 2.0**-25)).all()


@pytest.mark.parametrize("unit", [0, -1, 3, np.inf, np.nan, 2.0**-140])
def test_impossible_units_are_refused(unit):
    with pytest.raises(StreamError, match="fp16 unit"):
        Fp16().restore(np.zeros(2, np.uint8), np.float32([unit]), 1, SINGLE)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_values_that_are_not_finite_are_refused(value):
    with pytest.raises(StreamError, match="finite"):
        Fp16().restore(np.float16([value]).view(np.uint8), np.float32([1]), 1, SINGLE)
    with pytest.raises(StreamError, match="finite"):
        Fp16().restore(np.float16([65504]).view(np.uint8), np.float32([2.0**113]), 1, SINGLE)
    with pytest.raises(StreamError, match="finite"):
        FLOAT32.restore(np.float32([value]).view(np.uint8), np.zeros(0, np.float32), 1, SINGLE)


# ---------------------------------------------------------------- qsgd


class Fixed:
    """A generator that always draws the same number."""

    def __init__(self, value):
        self.value = value

    def random(self, size, dtype):
        return np.full(size, self.value, dtype)


def test_qsgd_by_hand():
    # 4 bits have 7 steps of 1 up to 7. With u = 0.25, 2.8 goes up to 3, 2.7 down to 2, -2.8 to floor(-2.55) = -3.
    values = np.float32([7, 2.8, 2.7, -2.8, 0])
    codes, bounds = Qsgd(4).quantise(values, Fixed(0.25))
    assert bounds.tolist() == [7]
    assert codes.tolist() == [14 << 4 | 10, 9 << 4 | 4, 7 << 4]
    assert Qsgd(4).restore(codes, bounds, 5, DOUBLE).tolist() == [7, 3, 2, -3, 0]


def test_qsgd_in_two_bits_is_ternary():
    codes, bounds = Qsgd(2).quantise(np.float32([2, -2, 0, 1, 1.2]), Fixed(0.45))
    assert codes.tolist() == [2 << 6 | 0 << 4 | 1 << 2 | 1, 2 << 6]
    assert Qsgd(2).restore(codes, bounds, 5, DOUBLE).tolist() == [2, -2, 0, 0, 2]


@pytest.mark.parametrize("bits", [2, 4, 8])
@settings(max_examples=40, deadline=None)
@given(values=vectors(), seed=st.integers(0, 2**32 - 1))
def test_qsgd_errs_by_less_than_a_step(bits, values, seed):
    decoded = there_and_back(Qsgd(bits), values, rng=np.random.default_rng(seed))
    largest = np.abs(values).max()
    step = largest / Qsgd(bits).num_steps
    assert (np.abs(decoded - values) <= step * (1 + 1e-5)).all()
    assert np.abs(decoded).max() <= largest


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_qsgd_is_unbiased(bits):
    """Rounding to steps d apart has a standard deviation of at most d/2; allow six standard errors of the mean."""
    values = np.random.default_rng(1).uniform(-3, 3, 50).astype(np.float32)
    num_draws = 1500
    draws = [there_and_back(Qsgd(bits), values, rng=np.random.default_rng(seed)) for seed in range(num_draws)]
    step = np.abs(values).max() / Qsgd(bits).num_steps
    assert np.abs(np.mean(draws, 0) - values).max() <= 6 * step / 2 / num_draws**0.5


@pytest.mark.parametrize("u", [0.0, 1 - 2.0**-24])
def test_the_largest_magnitude_stays_within_the_codes(u):
    values = np.float32([0.3, -0.3, 0])
    decoded = there_and_back(Qsgd(8), values, rng=Fixed(u))
    assert decoded[0] == values[0]
    assert decoded[1] == pytest.approx(-0.3, abs=0.3 / 127 * 1.001)
    assert decoded[2] == 0


def test_impossible_codes_of_qsgd_are_rejected():
    for bound in (-1, np.inf, np.nan):
        with pytest.raises(StreamError, match="qsgd bound"):
            Qsgd(8).restore(np.zeros(1, np.uint8), np.float32([bound]), 1, SINGLE)
    for bits in (2, 4, 8):
        with pytest.raises(StreamError, match="qsgd codes"):
            Qsgd(bits).restore(np.array([255], np.uint8), np.float32([1]), 1, SINGLE)


@pytest.mark.parametrize("bits", [0, 1, 3, 16])
def test_other_bits_are_refused(bits):
    with pytest.raises(ConfigError, match="2, 4 or 8 bits per value, got"):
        Qsgd(bits)
