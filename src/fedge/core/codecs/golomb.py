"""Golomb coding of places: sorted indexes become the gaps between them, in nearly the fewest bits possible.

A gap is split at bit b*: what lies above goes in unary (that many zeros, then a one), what lies below as it
is. All unary parts come first and all low bits after them, so that both directions run on whole arrays.
"""

from __future__ import annotations

from math import floor, log, log2, pow, sqrt

import numpy as np
from numpy.typing import NDArray

from fedge.core.errors import StreamError

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]

GOLDEN_RATIO = (1 + sqrt(5)) / 2


def width(sparsity: float) -> int:
    """b*, the number of low bits of a gap, for places of which this fraction is absent."""
    if not 0 < sparsity < 1:
        return 0
    return max(0, 1 + floor(log2(log(GOLDEN_RATIO - 1) / log(sparsity))))


def bits_per_place(sparsity: float) -> float:
    """g_s, the mean number of bits of a place when each is absent with this probability, in [0, 1)."""
    b = width(sparsity)
    return b + 1 / (1 - pow(sparsity, 2**b))


def encode_places(places: Places, size: int) -> tuple[int, Bytes]:
    """(b*, bits) of increasing places in a tensor of `size` values."""
    count = len(places)
    b = width(1 - count / size) if size else 0
    gaps = np.diff(places, prepend=-1) - 1
    ends = np.cumsum((gaps >> b) + 1)
    num_unary = int(ends[-1]) if count else 0
    bits = np.zeros(num_unary + count * b, np.uint8)
    bits[ends - 1] = 1
    low_bits = bits[num_unary:].reshape(count, b)
    for column in range(b):
        low_bits[:, column] = gaps >> (b - 1 - column) & 1
    return b, np.packbits(bits)


def decode_places(data: Bytes, b: int, count: int, size: int) -> tuple[Places, int]:
    """The places that `data` starts with and how many bytes they took; a StreamError if there are none."""
    longest = count + (size >> b)  # the unary parts' length if the gaps fill the whole tensor
    unary = np.unpackbits(data[: longest // 8 + 1]).view(np.bool_)  # booleans are searched much faster
    ends = np.flatnonzero(unary)[:count] + 1
    if len(ends) < count:
        raise StreamError(f"expected {count} places among {size}, found {len(ends)}; the stream is corrupt")
    num_unary = int(ends[-1]) if count else 0
    num_bits = num_unary + count * b
    num_bytes = (num_bits + 7) // 8
    if num_bytes > len(data):
        raise StreamError(f"expected {num_bytes} bytes of places, {len(data)} are left; the stream is cut short")
    gaps = np.diff(ends, prepend=0) - 1
    low_bits = np.unpackbits(data[:num_bytes], count=num_bits)[num_unary:].reshape(count, b)
    for column in range(b):
        gaps = gaps << 1 | low_bits[:, column]
    places = np.cumsum(gaps + 1) - 1
    if count and places[-1] >= size:
        raise StreamError(f"expected places below {size}, found {places[-1]}; the stream is corrupt")
    return places, num_bytes
