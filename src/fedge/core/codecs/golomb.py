"""Golomb coding of sorted indices: the gaps between them are encoded in nearly the fewest bits possible.

A gap is split at bit b*. The high part is written in unary (that many zeros, then a one), the low part in binary.
All unary parts come first and all low bits after them, so that encoding and decoding work on whole arrays.
"""

from __future__ import annotations

from math import floor, log, log2, pow, sqrt

import numpy as np
from numpy.typing import NDArray

from fedge.core.errors import StreamError

Bytes = NDArray[np.uint8]
Indices = NDArray[np.int64]

GOLDEN_RATIO = (1 + sqrt(5)) / 2


def width(sparsity: float) -> int:
    """Return b*, the number of low bits of a gap, if this fraction of the indices is absent."""
    if not 0 < sparsity < 1:
        return 0
    return max(0, 1 + floor(log2(log(GOLDEN_RATIO - 1) / log(sparsity))))


def bits_per_index(sparsity: float) -> float:
    """Return g_s, the mean number of bits per index if each is absent with this probability, in [0, 1)."""
    b = width(sparsity)
    return b + 1 / (1 - pow(sparsity, 2**b))


def encode_indices(indices: Indices, size: int) -> tuple[int, Bytes]:
    """Return (b*, code) of increasing indices into a tensor of `size` values."""
    count = len(indices)
    b = width(1 - count / size) if size else 0
    gaps = np.diff(indices, prepend=-1) - 1
    ends = np.cumsum((gaps >> b) + 1)
    num_unary = int(ends[-1]) if count else 0
    bits = np.zeros(num_unary + count * b, np.uint8)
    bits[ends - 1] = 1
    low_bits = bits[num_unary:].reshape(count, b)
    for column in range(b):
        low_bits[:, column] = gaps >> (b - 1 - column) & 1
    return b, np.packbits(bits)


def decode_indices(data: Bytes, b: int, count: int, size: int) -> tuple[Indices, int]:
    """Return the `count` indices at the start of `data` and the number of bytes they take.

    Raises StreamError if the data is not a valid code.
    """
    longest = count + (size >> b)  # length of the unary parts if the gaps span the whole tensor
    unary = np.unpackbits(data[: longest // 8 + 1]).view(np.bool_)  # searching booleans is much faster
    ends = np.flatnonzero(unary)[:count] + 1
    if len(ends) < count:
        raise StreamError(f"expected {count} indices among {size}, found {len(ends)}; the stream is corrupt")
    num_unary = int(ends[-1]) if count else 0
    num_bits = num_unary + count * b
    num_bytes = (num_bits + 7) // 8
    if num_bytes > len(data):
        raise StreamError(f"expected {num_bytes} bytes of indices, {len(data)} are left; the stream is cut short")
    gaps = np.diff(ends, prepend=0) - 1
    low_bits = np.unpackbits(data[:num_bytes], count=num_bits)[num_unary:].reshape(count, b)
    for column in range(b):
        gaps = gaps << 1 | low_bits[:, column]
    indices = np.cumsum(gaps + 1) - 1
    if count and indices[-1] >= size:
        raise StreamError(f"expected indices below {size}, found {indices[-1]}; the stream is corrupt")
    return indices, num_bytes
