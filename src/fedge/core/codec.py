"""Compression of uploads. docs/stream.md describes the bytes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedge.core.errors import ConfigError, ModelError, StreamError, TrainingError
from fedge.core.golomb import Bytes, Places, decode_places, encode_places, expected_bits
from fedge.core.layout import Layout, Tree
from fedge.core.quantise import (
    Values,
    quantise_exponential,
    quantise_uniform,
    restore_exponential,
    restore_uniform,
)

MAGIC = b"FDS1"
STREAM = "stream"
_FRAME = 12  # magic, signature, checksum
_COUNT_BITS = 27  # of the word that holds b* and the number of kept values


class Codec(Protocol):
    """Turns a whole upload into what travels and back; `down` is what the client had been sent."""

    def encode(self, upload: Tree, down: Tree) -> Tree: ...
    def decode(self, wire: Tree, down: Tree) -> Tree: ...


@dataclass(frozen=True)
class SparseCodec:
    """CE-FedAvg's compression of one client's upload; without moments, that of compressed FedAvg.

    Of the lead vector the largest changes of each tensor travel in 8 bits (UniQ), of the moments the changes
    at the same places (ExpQ), with the places in Golomb's code, all in one stream. What is not kept decodes
    to what was sent down. Any other entry of the upload travels as it is.
    """

    layout: Layout
    sparsity: float  # the fraction removed from each tensor; those of one dimension lose their zeros only
    lead: str = "y"
    anchors: Mapping[str, str | None] = field(default_factory=lambda: {"y": "x"})  # None: is a change already
    moments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.sparsity < 1:
            raise ConfigError(f"sparsity must be at least 0 and less than 1, got {self.sparsity}")
        for name in self._names:
            if name not in self.anchors:
                raise ConfigError(f"anchors: {name!r} is missing; name what it is a change of in `down`, or give None")
        for entry, (size, _) in zip(self.layout.params, self.tensors, strict=True):
            if size >> _COUNT_BITS:
                raise ModelError(
                    f"{entry.name} has {size} values, a stream holds fewer than {1 << _COUNT_BITS} a tensor"
                )

    @cached_property
    def tensors(self) -> tuple[tuple[int, float], ...]:
        """(size, sparsity) of each tensor, as `formula_bits` takes them."""
        return tuple((e.stop - e.start, self.sparsity if len(e.shape) > 1 else 0.0) for e in self.layout.params)

    def encode(self, upload: Tree, down: Tree) -> Tree:
        changes = [self._change(name, upload, down) for name in self._names]
        pieces = [MAGIC, self._signature]
        for entry, (_, sparsity) in zip(self.layout.params, self.tensors, strict=True):
            pieces += _write_tensor([change[entry.start : entry.stop] for change in changes], sparsity)
        body = b"".join(pieces)
        stream = bytearray(body + struct.pack("<I", zlib.crc32(body)))
        passed = {name: value for name, value in upload.items() if name not in self._names}
        if STREAM in passed:
            raise ModelError(f"an upload to be compressed cannot have an entry {STREAM!r}; give it another name")
        return {STREAM: torch.frombuffer(stream, dtype=torch.uint8), **passed}

    def decode(self, wire: Tree, down: Tree) -> Tree:
        rest = self._open(wire.get(STREAM))
        vectors = {name: self._anchor(name, down).clone() for name in self._names}
        for entry in self.layout.params:
            try:
                places, changes, rest = _read_tensor(rest, entry.stop - entry.start, len(self.moments))
            except StreamError as error:
                raise StreamError(f"{entry.name}: {error}") from None
            for vector, change in zip(vectors.values(), changes, strict=True):
                vector[entry.start : entry.stop].index_add_(
                    0, torch.from_numpy(places), torch.from_numpy(change).to(vector.dtype)
                )
        if len(rest):
            raise StreamError(f"expected the stream to end after its last tensor, got {len(rest)} bytes more")
        passed = {name: value for name, value in wire.items() if name != STREAM}
        return {**passed, **vectors}

    @property
    def _names(self) -> tuple[str, ...]:
        return (self.lead, *self.moments)

    @cached_property
    def _signature(self) -> bytes:
        """What encoder and decoder must agree on, in four bytes."""
        lines = [
            " ".join(self._names),
            *(f"{e.name} {'x'.join(map(str, e.shape))}" for e in self.layout.params),
        ]
        return struct.pack("<I", zlib.crc32("\n".join(lines).encode()))

    def _anchor(self, name: str, down: Tree) -> Tensor:
        """What was sent down of this vector; zeros for one that is a change already."""
        anchor = self.anchors[name]
        if anchor is not None:
            return self._checked(anchor, down[anchor])
        dtype = next((value.dtype for value in down.values() if value.is_floating_point()), torch.float32)
        return torch.zeros(self.layout.num_params, dtype=dtype)

    def _change(self, name: str, upload: Tree, down: Tree) -> NDArray[np.float32]:
        value = self._checked(name, upload[name])
        change: NDArray[np.float32] = (value - self._anchor(name, down)).to(torch.float32).numpy()
        if not np.isfinite(change).all():
            raise TrainingError(
                f"the change of {name!r} is not finite in float32; lower the learning rate or clip gradients"
            )
        return change

    def _checked(self, name: str, vector: Tensor) -> Tensor:
        if vector.shape != (self.layout.num_params,):
            expected = f"one client's vector of {self.layout.num_params} values"
            raise ModelError(f"{name!r}: expected {expected}, got the shape {tuple(vector.shape)}")
        return vector.detach()

    def _open(self, stream: Tensor | None) -> Bytes:
        """The tensors' part of a stream that is whole and meant for this codec."""
        if stream is None or stream.dtype != torch.uint8 or stream.dim() != 1 or len(stream) < _FRAME:
            raise StreamError(f"expected {STREAM!r} with at least {_FRAME} bytes, got {_describe(stream)}")
        data: Bytes = np.ascontiguousarray(stream.numpy())
        if (magic := data[:4].tobytes()) != MAGIC:
            raise StreamError(
                f"expected a stream that starts with {MAGIC!r}, got {magic!r}; both ends need one version"
            )
        if zlib.crc32(data[:-4].data) != int.from_bytes(data[-4:].tobytes(), "little"):
            raise StreamError(f"stream of {len(data)} bytes is truncated or corrupt: its checksum does not match")
        if data[4:8].tobytes() != self._signature:
            raise StreamError("the stream is of another model or other moments; give both ends the same configuration")
        return data[8:-4]


def largest(values: Values, sparsity: float) -> Places:
    """The places of the n - int(n * sparsity) largest magnitudes, at least 1, ties to the lower; no zeros."""
    num_kept = max(1, len(values) - int(len(values) * sparsity))
    places = np.flatnonzero(values)
    if num_kept >= len(places):
        return places
    magnitudes = np.abs(values[places])  # zeros are many where inputs are, and partitioning ties is slow
    smallest = np.partition(magnitudes, len(places) - num_kept)[len(places) - num_kept]
    kept = np.flatnonzero(magnitudes >= smallest)
    num_surplus = len(kept) - num_kept
    if num_surplus:
        ties = np.flatnonzero(magnitudes[kept] == smallest)
        kept = np.delete(kept, ties[-num_surplus:])
    return places[kept]


def bits_per_value(sparsity: float, moments: bool) -> float:
    """The expected number of bits for each value of a tensor, with its two moments or without."""
    return (1 - sparsity) * ((24 if moments else 8) + expected_bits(sparsity))


def formula_bits(tensors: Iterable[tuple[int, float]], moments: bool) -> float:
    """The published size of an upload, from (size, sparsity) of each tensor.

    With moments a stream needs 64 bits a tensor more, as each ExpQ sends two bounds, not one base.
    """
    header_bits = 224 if moments else 160
    return sum(header_bits + bits_per_value(sparsity, moments) * size for size, sparsity in tensors)


def _write_tensor(changes: Sequence[NDArray[np.float32]], sparsity: float) -> Iterator[bytes]:
    lead, *moments = changes
    places = largest(lead, sparsity)
    b, place_bits = encode_places(places, len(lead))
    coded = [quantise_uniform(lead[places]), *(quantise_exponential(moment[places]) for moment in moments)]
    yield struct.pack("<I", b << _COUNT_BITS | len(places))
    yield from (bounds.astype("<f4").tobytes() for _, bounds in coded)
    yield place_bits.tobytes()
    yield from (codes.tobytes() for codes, _ in coded)


def _read_tensor(data: Bytes, size: int, num_moments: int) -> tuple[Places, list[NDArray[np.float64]], Bytes]:
    """The places, the changes there, lead first, and the bytes that follow."""
    head, data = _cut(data, 20 + 8 * num_moments)
    word = int.from_bytes(head[:4].tobytes(), "little")
    b, count = word >> _COUNT_BITS, word & ((1 << _COUNT_BITS) - 1)
    if count > size:
        raise StreamError(f"expected at most {size} values, got {count}; the stream is corrupt")
    bounds = np.frombuffer(head[4:].tobytes(), "<f4")
    places, num_bytes = decode_places(data, b, count, size)
    data = data[num_bytes:]
    codes, data = _cut(data, count)
    changes = [restore_uniform(codes, bounds[:4])]
    for pair in bounds[4:].reshape(num_moments, 2):
        codes, data = _cut(data, count)
        changes.append(restore_exponential(codes, pair))
    return places, changes, data


def _cut(data: Bytes, num_bytes: int) -> tuple[Bytes, Bytes]:
    if num_bytes > len(data):
        raise StreamError(f"expected {num_bytes} bytes more, {len(data)} are left; the stream is cut short")
    return data[:num_bytes], data[num_bytes:]


def _describe(stream: Tensor | None) -> str:
    return "nothing" if stream is None else f"{stream.dtype} of shape {tuple(stream.shape)}"
