import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.codecs.golomb import bits_per_index, decode_indices, encode_indices, width
from fedge.core.errors import StreamError
from mutations import fuzz, mutate


def indices_of(*indices):
    return np.array(indices, np.int64)


@pytest.mark.parametrize(("sparsity", "b", "bits"), [(0.0, 0, 1.0), (0.6, 0, 2.5), (0.9, 3, 4.7558), (0.95, 4, 5.7861)])
def test_width_and_bits_per_index(sparsity, b, bits):
    assert width(sparsity) == b
    assert bits_per_index(sparsity) == pytest.approx(bits, abs=5e-5)


def test_bits_by_hand():
    # 1 - 2/20 = 0.9, so b* = 3. Gaps 2 = 0*8 + 2 and 17 - 2 - 1 = 14 = 1*8 + 6.
    # Unary 1, 01; low bits 010, 110: 1010 1011 | 0 and seven zeros.
    b, data = encode_indices(indices_of(2, 17), 20)
    assert b == 3
    assert data.tolist() == [0b10101011, 0b00000000]


def test_all_indices_take_one_bit_each():
    b, data = encode_indices(np.arange(16), 16)
    assert (b, data.tolist()) == (0, [255, 255])


def test_no_indices_take_no_bytes():
    b, data = encode_indices(indices_of(), 1000)
    assert (b, len(data)) == (0, 0)
    indices, num_bytes = decode_indices(data, b, 0, 1000)
    assert (len(indices), num_bytes) == (0, 0)


@pytest.mark.parametrize("index", [0, 1, 12_345_678, 99_999_999])
def test_one_index_in_a_huge_tensor(index):
    b, data = encode_indices(indices_of(index), 100_000_000)
    # ln(phi - 1) = -0.4812 and ln(1 - 1e-8) = -1e-8, so b* = 1 + floor(log2(0.4812e8)) = 26; with at most two
    # unary bits that is 28 of the 32 bits.
    assert b == 26
    assert len(data) == 4
    indices, num_bytes = decode_indices(data, b, 1, 100_000_000)
    assert (indices.tolist(), num_bytes) == ([index], 4)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 3000), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_round_trip_ignores_trailing_bytes(size, density, seed):
    rng = np.random.default_rng(seed)
    indices = np.flatnonzero(rng.random(size) < density)
    b, data = encode_indices(indices, size)
    followed = np.concatenate([data, rng.integers(0, 256, 20, np.uint8)])
    decoded, num_bytes = decode_indices(followed, b, len(indices), size)
    assert np.array_equal(decoded, indices)
    assert num_bytes == len(data)


@pytest.mark.parametrize("sparsity", [0.6, 0.9, 0.95])
def test_real_size_matches_the_expected_size(sparsity):
    indices = np.flatnonzero(np.random.default_rng(1).random(200_000) >= sparsity)
    _, data = encode_indices(indices, 200_000)
    assert 8 * len(data) / len(indices) == pytest.approx(bits_per_index(sparsity), rel=0.01)


def test_invalid_codes_are_rejected():
    with pytest.raises(StreamError, match="expected 3 indices among 8, found 2"):
        decode_indices(np.array([0b10100000], np.uint8), 0, 3, 8)
    with pytest.raises(StreamError, match="expected 2 bytes of indices, 1 are left"):
        decode_indices(np.array([0b11100000], np.uint8), 2, 3, 8)
    with pytest.raises(StreamError, match="expected indices below 4, found 7"):
        decode_indices(np.array([0b00000001], np.uint8), 0, 1, 4)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40), st.integers(0, 31), st.integers(0, 400), st.integers(0, 400))
def test_any_bytes_decode_to_indices_or_are_rejected(data, b, count, size):
    try:
        indices, num_bytes = decode_indices(np.frombuffer(data, np.uint8), b, count, size)
    except StreamError:
        return
    assert len(indices) == count
    assert num_bytes <= len(data)
    assert not count or (indices[0] >= 0 and indices[-1] < size)
    assert (np.diff(indices) > 0).all()


def forge(rng):
    """Return b, count and size in five bytes, then a modified code; half the time with its original parameters."""
    size = rng.choice([1, 7, 100, 3000, 60_000])
    indices = np.array(sorted(rng.sample(range(size), rng.randint(0, min(size, 300)))), np.int64)
    b, data = encode_indices(indices, size)
    count = len(indices)
    if rng.random() < 0.5:
        b, count = rng.choice([0, 1, b, 8, 31]), rng.choice([count, 0, 1, 300, 65_535])
    return bytes([b]) + count.to_bytes(2, "little") + size.to_bytes(2, "little") + mutate(data.tobytes(), rng)


def decode_forged(case):
    b, count, size = case[0], int.from_bytes(case[1:3], "little"), int.from_bytes(case[3:5], "little")
    indices, num_bytes = decode_indices(np.frombuffer(case, np.uint8, offset=5), b, count, size)
    assert len(indices) == count
    assert num_bytes <= len(case) - 5
    assert not count or (indices[0] >= 0 and indices[-1] < size)
    assert (np.diff(indices) > 0).all()


@pytest.mark.parametrize("num_cases", [2_000, pytest.param(20_000, marks=pytest.mark.full)])
def test_mutations_decode_to_indices_or_are_rejected(num_cases):
    # A bit becomes a byte, twice; an index takes 8 bytes in each of a few arrays. There are at most 8 indices per byte.
    found = fuzz(forge, decode_forged, StreamError, num_cases, lambda case: (16 + 8 * 8 * 6) * len(case))
    assert found[""] > num_cases / 10
    for complaint in ("indices among", "bytes of indices", "indices below"):
        assert any(complaint in text for text in found)
