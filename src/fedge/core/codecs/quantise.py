"""Quantisers, which encode floats in fewer bits, and their inverses.

Each encodes the float32 values of a tensor as bytes and a few float32 bounds that decoding needs. Codes of eight bits
or fewer are decoded through a lookup table. Names are those used in experiment files.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp, log
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fedge.core.errors import ConfigError, ModelError, StreamError
from fedge.core.parts import Part
from fedge.core.schema import Options

Bytes = NDArray[np.uint8]
Bounds = NDArray[np.float32]
Values = NDArray[np.floating[Any]]
Float = np.dtype[Any]

SMALLEST = float(np.finfo(np.float32).smallest_normal)
"""Smaller float32 magnitudes are subnormal, and some machines flush them to zero; ExpQ treats them as zero."""


class Quantiser(Protocol):
    """An encoding of a tensor's values: `num_bounds` numbers per tensor and `bits` bits per value."""

    @property
    def name(self) -> str: ...
    @property
    def bits(self) -> int: ...
    @property
    def num_bounds(self) -> int: ...

    def quantise(self, values: NDArray[np.float32], rng: np.random.Generator) -> tuple[Bytes, Bounds]:
        """Codes and bounds of finite values."""

    def restore(self, codes: Bytes, bounds: Bounds, count: int, dtype: Float) -> Values:
        """Return the values; raises StreamError if no encoder could have written these codes and bounds."""


@dataclass(frozen=True)
class Float32:
    """Unquantised values: a chain without a quantiser."""

    name: ClassVar[str] = "float32"
    bits: ClassVar[int] = 32
    num_bounds: ClassVar[int] = 0

    def quantise(self, values: NDArray[np.float32], rng: np.random.Generator) -> tuple[Bytes, Bounds]:
        return values.astype("<f4").view(np.uint8), np.zeros(0, np.float32)

    def restore(self, codes: Bytes, bounds: Bounds, count: int, dtype: Float) -> Values:
        values = _aligned(codes, "<f4")
        if not np.isfinite(values).all():
            raise StreamError("float32 values: found a value that is not finite; the stream is corrupt")
        return values.astype(dtype)


FLOAT32 = Float32()


@dataclass(frozen=True)
class Fp16:
    """Half precision, scaled by a power of two so that the largest magnitude lies between 2^14 and 2^15.

    No value overflows, and only magnitudes 2^28 times smaller than the largest lose precision. The bound is the
    unit: the value that a half of 1 represents.
    """

    name: ClassVar[str] = "fp16"
    bits: ClassVar[int] = 16
    num_bounds: ClassVar[int] = 1

    def quantise(self, values: NDArray[np.float32], rng: np.random.Generator) -> tuple[Bytes, Bounds]:
        unit = max(2.0 ** (frexp(_largest(values))[1] - 15), SMALLEST)
        halves = torch.from_numpy(values * np.float32(1 / unit)).to(torch.float16).numpy()  # far faster than numpy's
        return halves.astype("<f2", copy=False).view(np.uint8), np.array([unit], np.float32)

    def restore(self, codes: Bytes, bounds: Bounds, count: int, dtype: Float) -> Values:
        unit = float(bounds[0])
        if not (SMALLEST <= unit < np.inf and frexp(unit)[0] == 0.5):
            raise StreamError(f"fp16 unit: expected a power of two of at least 2^-126, got {unit}")
        halves = torch.from_numpy(_aligned(codes, "<f2").astype(np.float16, copy=False))
        values: Values = halves.to(torch.float32).numpy().astype(dtype, copy=False)
        with np.errstate(over="ignore"):
            values *= unit
        if not np.isfinite(values).all():
            raise StreamError("fp16 values: found a value that is not finite; the stream is corrupt")
        return values


@dataclass(frozen=True)
class UniQ:
    """Equal steps between the smallest and the largest value of each sign (Mills 2023, algorithm 3).

    Codes 0..127 are the negative values and 128..255 the others. The error is at most half a step, and values equal to
    a bound are restored exactly. The bounds are min and max of the negative values, then of the others; zeros if there
    are none.
    """

    name: ClassVar[str] = "uniq"
    bits: ClassVar[int] = 8
    num_bounds: ClassVar[int] = 4

    def quantise(self, values: NDArray[np.float32], rng: np.random.Generator) -> tuple[Bytes, Bounds]:
        bounds = np.zeros(4, np.float32)
        if not len(values):
            return np.zeros(0, np.uint8), bounds
        values = values + np.float32(0)  # turns -0 into 0
        least, greatest = values.min(), values.max()
        # Interpreted as integers, floats of one sign are ordered by magnitude, the smallest next to zero.
        if least < 0:
            bounds[:2] = least, values.view(np.int32).min().view(np.float32)
        if greatest >= 0:
            bounds[2:] = values.view(np.uint32).min().view(np.float32), greatest
        lows = bounds[::2].astype(np.float64)
        spans = bounds[1::2] - lows
        scales = np.divide(127, spans, out=np.zeros(2), where=spans > 0)
        side = (values >= 0).view(np.uint8)
        steps = values - lows[side]
        steps *= scales[side]
        codes = np.rint(steps, out=steps).astype(np.uint8)
        codes += side << np.uint8(7)
        return codes, bounds

    def restore(self, codes: Bytes, bounds: Bounds, count: int, dtype: Float) -> Values:
        least, below, above, greatest = map(float, bounds)
        if not -np.inf < least <= below <= 0 <= above <= greatest < np.inf:
            raise StreamError(f"UniQ bounds: expected min <= max <= 0 <= min <= max, got {bounds.tolist()}")
        table = np.concatenate([np.linspace(least, below, 128), np.linspace(above, greatest, 128)])
        return table.astype(dtype).take(codes)


@dataclass(frozen=True)
class ExpQ:
    """Equal ratios between the smallest and the largest magnitude (Mills 2023, algorithm 4).

    Code 0 is zero, 1..127 are negative and 129..255 positive values. Magnitudes decrease from the largest by the
    factor base = (min/max)^(-1/126) per code, so the error is at most half a step, the factor sqrt(base).
    The bounds are min and max of the non-zero magnitudes; zeros if there are none.
    """

    name: ClassVar[str] = "expq"
    bits: ClassVar[int] = 8
    num_bounds: ClassVar[int] = 2

    def quantise(self, values: NDArray[np.float32], rng: np.random.Generator) -> tuple[Bytes, Bounds]:
        magnitudes = np.abs(values)
        present = magnitudes >= np.float32(SMALLEST)
        if not present.any():
            return np.zeros(len(values), np.uint8), np.zeros(2, np.float32)
        # Positive floats sort like their bits as integers; values below SMALLEST wrap around to the far end.
        first = np.float32(SMALLEST).view(np.uint32)
        low = float(((magnitudes.view(np.uint32) - first).min() + first).view(np.float32))
        high = float(magnitudes.max())
        exponents = high / np.maximum(magnitudes, low).astype(np.float64)
        np.log(exponents, out=exponents)
        exponents *= 126 / log(high / low) if high > low else 0
        codes = np.rint(exponents, out=exponents).astype(np.uint8)
        codes += np.uint8(1) + ((values >= 0).view(np.uint8) << np.uint8(7))
        codes *= present
        return codes, np.array([low, high], np.float32)

    def restore(self, codes: Bytes, bounds: Bounds, count: int, dtype: Float) -> Values:
        low, high = map(float, bounds)
        if not (0 < low <= high < np.inf or low == high == 0):
            raise StreamError(f"ExpQ bounds: expected 0 < min <= max, or two zeros, got {bounds.tolist()}")
        if (codes == 128).any():
            raise StreamError("ExpQ codes: found 128, which is not assigned; the stream is corrupt")
        magnitudes = np.geomspace(high, low, 127) if high else np.zeros(127)
        table = np.concatenate([[0.0], -magnitudes, [0.0], magnitudes])
        return table.astype(dtype).take(codes)


@dataclass(frozen=True)
class Qsgd:
    """Equal steps between -max and max, rounded up or down at random without bias.

    QSGD (Alistarh et al. 2017) with the largest magnitude of a tensor as its norm. With b bits there are
    2^(b-1) - 1 steps on either side of zero; code 0 is -max. The bound is max. Zero stays zero.
    """

    bits: int = 8
    num_bounds: ClassVar[int] = 1
    is_random: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.bits not in (2, 4, 8):
            raise ConfigError(f"qsgd expects 2, 4 or 8 bits per value, got {self.bits}")

    @property
    def name(self) -> str:
        return f"qsgd({self.bits})"

    @property
    def num_steps(self) -> int:
        return (1 << self.bits - 1) - 1

    def quantise(self, values: NDArray[np.float32], rng: np.random.Generator) -> tuple[Bytes, Bounds]:
        largest = _largest(values)
        steps = rng.random(len(values), np.float32)
        if largest >= SMALLEST:
            steps += values / np.float32(largest) * np.float32(self.num_steps)
        np.floor(steps, out=steps)
        np.minimum(steps, self.num_steps, out=steps)  # max plus nearly one may round up to the next step
        steps += self.num_steps
        return _pack(steps.astype(np.uint8), self.bits), np.array([largest], np.float32)

    def restore(self, codes: Bytes, bounds: Bounds, count: int, dtype: Float) -> Values:
        largest = float(bounds[0])
        if not 0 <= largest < np.inf:
            raise StreamError(f"qsgd bound: expected a finite number of at least 0, got {largest}")
        codes = _unpack(codes, self.bits)[:count]
        if (codes > 2 * self.num_steps).any():
            raise StreamError(f"qsgd codes: found a code above {2 * self.num_steps}; the stream is corrupt")
        table = np.arange(-self.num_steps, self.num_steps + 1) / self.num_steps * largest  # exact at -max, 0 and max
        return table.astype(dtype).take(codes)


class QuantiserStage(Options):
    """Base class of user-defined quantisers: options, bits per value, and the encoder and decoder.

    `encode` returns the codes, packed into (bits * count + 7) // 8 bytes, and `num_bounds` numbers that `decode` needs.
    Uploads are untrusted, so exceptions and results of `decode` are checked.
    """

    part = Part("codec", "fedge.codecs")
    bits: ClassVar[int] = 8
    num_bounds: ClassVar[int] = 0
    is_random: ClassVar[bool] = False  # whether `encode` draws from its generator

    @property
    def name(self) -> str:
        """The name and options, which both ends of a stream compare."""
        values = [f"{field}={getattr(self, field)}" for field in self.__struct_fields__]
        return f"{type(self).__name__}({','.join(values)})"

    def encode(self, values: NDArray[np.float32], rng: np.random.Generator) -> tuple[Bytes, Bounds]:
        """Codes and bounds of finite values."""
        raise TypeError(f"{type(self).__name__} must define encode")

    def decode(self, codes: Bytes, bounds: Bounds, count: int) -> Values:
        """Return the values that the codes represent."""
        raise TypeError(f"{type(self).__name__} must define decode")

    def quantise(self, values: NDArray[np.float32], rng: np.random.Generator) -> tuple[Bytes, Bounds]:
        codes, bounds = self.encode(values, rng)
        expected = (self.bits * len(values) + 7) // 8, self.num_bounds
        if codes.dtype != np.uint8 or (len(codes), len(bounds)) != expected:
            raise ModelError(
                f"{type(self).__name__}.encode: expected {expected[0]} bytes of codes and {expected[1]} bounds for "
                f"{len(values)} values, got {len(codes)} of {codes.dtype} and {len(bounds)}"
            )
        return codes, bounds.astype(np.float32)

    def restore(self, codes: Bytes, bounds: Bounds, count: int, dtype: Float) -> Values:
        try:
            values = np.asarray(self.decode(codes, bounds, count)).astype(dtype)
        except Exception as error:
            raise StreamError(f"{type(self).__name__}.decode failed: {type(error).__name__}: {error}") from error
        if values.shape != (count,) or not np.isfinite(values).all():
            raise StreamError(f"{type(self).__name__}.decode: expected {count} finite values; the stream is corrupt")
        return values


def _largest(values: NDArray[np.float32]) -> float:
    return float(max(values.max(), -values.min())) if len(values) else 0.0


def _aligned(codes: Bytes, dtype: str) -> Values:
    """Return bytes, which may be unaligned in a stream, as aligned values."""
    return codes.copy().view(dtype)


def _pack(codes: Bytes, bits: int) -> Bytes:
    """Pack codes into bytes, most significant bits first; zeros fill the last byte."""
    per_byte = 8 // bits
    codes = np.concatenate([codes, np.zeros(-len(codes) % per_byte, np.uint8)])
    packed = np.zeros(len(codes) // per_byte, np.uint8)
    for i in range(per_byte):
        packed |= codes[i::per_byte] << np.uint8(8 - bits * (i + 1))
    return packed


def _unpack(packed: Bytes, bits: int) -> Bytes:
    per_byte = 8 // bits
    codes = np.empty(len(packed) * per_byte, np.uint8)
    for i in range(per_byte):
        codes[i::per_byte] = packed >> np.uint8(8 - bits * (i + 1)) & np.uint8((1 << bits) - 1)
    return codes
