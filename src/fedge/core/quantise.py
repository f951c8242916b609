"""Eight bits for a float: two quantisers (Algorithms 3 and 4 of CE-FedAvg) and their inverses.

Both return codes and the float32 bounds that decoding needs. Decoding looks up one of 256 values, the
outermost of which are the bounds themselves: what sits on a bound comes back exactly.
"""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedge.core.errors import StreamError

Codes = NDArray[np.uint8]
Bounds = NDArray[np.float32]
Values = NDArray[np.floating[Any]]

SMALLEST = float(np.finfo(np.float32).smallest_normal)
"""Below it float32 loses precision, on some machines the value too: such magnitudes count as zero in ExpQ."""


def quantise_uniform(values: Values) -> tuple[Codes, Bounds]:
    """UniQ: equal steps between the least and the greatest value of each sign.

    Codes 0..127 are the negative values and 128..255 the others; the error is at most half a step.
    The bounds are min and max of the negative values, then of the others; zeros where there are none.
    """
    values = values.astype(np.float32, copy=False)
    codes = np.zeros(len(values), np.uint8)
    bounds = np.zeros(4, np.float32)
    negative = values < 0
    for side, first_code, ends in ((negative, 0, bounds[:2]), (~negative, 128, bounds[2:])):
        part = values[side].astype(np.float64)
        if not len(part):
            continue
        ends[:] = low, high = part.min(), part.max()
        steps = (part - low) * (127 / (high - low) if high > low else 0)
        codes[side] = np.rint(steps).astype(np.uint8) + np.uint8(first_code)
    return codes, bounds


def restore_uniform(codes: Codes, bounds: Bounds) -> NDArray[np.float64]:
    """UniDQ: the values of `quantise_uniform`."""
    least, below, above, greatest = map(float, bounds)
    if not -np.inf < least <= below <= 0 <= above <= greatest < np.inf:
        raise StreamError(f"bounds of UniQ: expected min <= max <= 0 <= min <= max, got {bounds.tolist()}")
    table = np.concatenate([np.linspace(least, below, 128), np.linspace(above, greatest, 128)])
    return table[codes]


def quantise_exponential(values: Values) -> tuple[Codes, Bounds]:
    """ExpQ: equal ratios between the least and the greatest magnitude.

    Code 0 is zero, 1..127 are negative and 129..255 positive values, from the greatest magnitude down by the
    factor base = (min/max)^(-1/126) a code; a magnitude is off by at most half a step, the factor sqrt(base).
    The bounds are min and max of the magnitudes other than zero; zeros where there are none.
    """
    values = values.astype(np.float32, copy=False)
    magnitudes = np.abs(values).astype(np.float64)
    present = magnitudes >= SMALLEST
    codes = np.zeros(len(values), np.uint8)
    bounds = np.zeros(2, np.float32)
    if present.any():
        magnitudes = magnitudes[present]
        bounds[:] = low, high = magnitudes.min(), magnitudes.max()
        exponents = np.log(high / magnitudes) * (126 / log(high / low) if high > low else 0)
        first_codes = np.where(values[present] < 0, np.uint8(1), np.uint8(129))
        codes[present] = np.rint(exponents).astype(np.uint8) + first_codes
    return codes, bounds


def restore_exponential(codes: Codes, bounds: Bounds) -> NDArray[np.float64]:
    """ExpDQ: the values of `quantise_exponential`."""
    low, high = map(float, bounds)
    if not (0 < low <= high < np.inf or low == high == 0):
        raise StreamError(f"bounds of ExpQ: expected 0 < min <= max, or twice 0, got {bounds.tolist()}")
    if (codes == 128).any():
        raise StreamError("codes of ExpQ: found 128, which stands for no value; the stream is corrupt")
    magnitudes = np.geomspace(high, low, 127) if high else np.zeros(127)
    table = np.concatenate([[0.0], -magnitudes, [0.0], magnitudes])
    return table[codes]
