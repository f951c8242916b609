"""Reading and writing streams of compressed vectors. docs/stream.md describes the format."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedge.core.codecs.chain import Chain, kept
from fedge.core.codecs.golomb import Indices, decode_indices, encode_indices
from fedge.core.codecs.quantise import Bytes, ExpQ, Quantiser, UniQ, Values
from fedge.core.errors import ModelError, StreamError
from fedge.core.layout import Entry, Layout

MAGIC = b"FDS1"
_FRAME = 12  # magic, signature, checksum
_COUNT_BITS = 27  # of the word that holds b* and the number of kept values
_UNUSED = np.random.default_rng(0)  # for quantisers that draw no random numbers

Changes = Mapping[str, NDArray[np.float32]]
Vectors = Mapping[str, NDArray[Any]]


class Group(NamedTuple):
    """Vectors that share their indices: those of the largest values of the first vector, the lead, or all."""

    names: tuple[str, ...]
    quantisers: tuple[Quantiser, ...]
    chain: Chain  # of the lead: how indices are chosen and written

    def describe(self) -> str:
        """Return what a decoder must know as text, abbreviated for the chains of CE-FedAvg."""
        usual = [UniQ(), *[ExpQ()] * (len(self.names) - 1)]
        words = [
            name if quantiser == plain else f"{name}:{quantiser.name}"
            for name, quantiser, plain in zip(self.names, self.quantisers, usual, strict=True)
        ]
        if not self.chain.golomb:
            words.append("at:all" if self.chain.sparsity is None else "at:u32")
        return " ".join(words)


def write(layout: Layout, groups: Sequence[Group], changes: Changes, rng: np.random.Generator) -> bytearray:
    """Return the stream of all groups, one after another, tensor by tensor."""
    pieces: list[bytes | memoryview] = [MAGIC, _signature(layout, groups)]
    for group in groups:
        for entry in layout.params:
            parts = [changes[name][entry.start : entry.stop] for name in group.names]
            pieces += _write_tensor(group, entry, parts, rng)
    stream = bytearray().join(pieces)
    stream += struct.pack("<I", zlib.crc32(stream))
    return stream


@np.errstate(over="ignore")  # the receiver checks for sums that are not finite
def read(layout: Layout, groups: Sequence[Group], data: Bytes, vectors: Vectors) -> None:
    """Add the contents of a stream to the vectors in place; raises StreamError if it is corrupt or of other groups."""
    cursor = _Cursor(_open(layout, groups, data))
    for group in groups:
        targets = [vectors[name] for name in group.names]
        for entry in layout.params:
            try:
                _read_tensor(cursor, group, [target[entry.start : entry.stop] for target in targets])
            except StreamError as error:
                raise StreamError(f"{entry.name}: {error}") from None
    if cursor.left:
        raise StreamError(f"expected the stream to end after its last tensor, got {cursor.left} bytes more")


def carried(layout: Layout, chain: Chain, change: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a vector as decoded from its stream, for a chain that draws no random numbers."""
    found = np.zeros_like(change)
    for entry in layout.params:
        part, target = change[entry.start : entry.stop], found[entry.start : entry.stop]
        indices = _choose(chain, entry, part)
        values = part if indices is None else part.take(indices)
        codes, bounds = chain.quantiser.quantise(values, _UNUSED)
        target[slice(None) if indices is None else indices] = chain.quantiser.restore(
            codes, bounds, len(values), change.dtype
        )
    return found


def largest(values: Values, sparsity: float) -> Indices:
    """Return the indices of the n - int(n * sparsity) largest magnitudes, at least 1, without zeros.

    Of equal magnitudes, those with lower indices come first.
    """
    num_kept = kept(len(values), sparsity)
    indices = np.flatnonzero(values != 0)  # searching booleans is much faster
    if num_kept >= len(indices):
        return indices
    magnitudes = np.abs(values.take(indices))  # without zeros, which are often many: partitioning ties is slow
    smallest = np.partition(magnitudes, len(indices) - num_kept)[len(indices) - num_kept]
    found = np.flatnonzero(magnitudes >= smallest)
    num_surplus = len(found) - num_kept
    if num_surplus:
        ties = np.flatnonzero(magnitudes.take(found) == smallest)
        found = np.delete(found, ties[-num_surplus:])
    return indices.take(found)


def _choose(chain: Chain, entry: Entry, lead: NDArray[np.float32]) -> Indices | None:
    sparsity = chain.sparsity_of(entry)
    if sparsity is None:
        return None
    if len(lead) >> _COUNT_BITS:
        raise ModelError(
            f"{entry.name} has {len(lead)} values, but a sparse tensor must have fewer than {1 << _COUNT_BITS}; "
            "drop sparsify"
        )
    return largest(lead, sparsity)


def _write_tensor(
    group: Group, entry: Entry, parts: Sequence[NDArray[np.float32]], rng: np.random.Generator
) -> Iterator[bytes | memoryview]:
    indices = _choose(group.chain, entry, parts[0])
    b, written = 0, np.zeros(0, np.uint8)
    if indices is not None:
        parts = [part.take(indices) for part in parts]
        if group.chain.golomb:
            b, written = encode_indices(indices, entry.stop - entry.start)
        else:
            written = indices.astype("<u4").view(np.uint8)
        yield struct.pack("<I", b << _COUNT_BITS | len(indices))
    coded = [q.quantise(part, rng) for q, part in zip(group.quantisers, parts, strict=True)]
    yield from (bounds.astype("<f4").tobytes() for _, bounds in coded)
    yield written.data
    yield from (codes.data for codes, _ in coded)


def _read_tensor(cursor: _Cursor, group: Group, targets: Sequence[NDArray[Any]]) -> None:
    """Add the changes of one tensor to the part of each vector that it lies in."""
    size = len(targets[0])
    b, count = 0, size
    if group.chain.sparsity is not None:
        word = int.from_bytes(cursor.take(4).tobytes(), "little")
        b, count = word >> _COUNT_BITS, word & ((1 << _COUNT_BITS) - 1)
        if count > size:
            raise StreamError(f"expected at most {size} values, got {count}; the stream is corrupt")
    bounds = [np.frombuffer(cursor.take(4 * q.num_bounds).tobytes(), "<f4") for q in group.quantisers]
    indices = _read_indices(cursor, group.chain, b, count, size)
    for quantiser, ends, target in zip(group.quantisers, bounds, targets, strict=True):
        codes = cursor.take((quantiser.bits * count + 7) // 8)
        values = quantiser.restore(codes, ends, count, target.dtype)
        if indices is None:
            target += values
        else:
            values += target.take(indices)
            target[indices] = values


def _read_indices(cursor: _Cursor, chain: Chain, b: int, count: int, size: int) -> Indices | None:
    if chain.sparsity is None:
        return None
    if chain.golomb:
        indices, num_bytes = decode_indices(cursor.rest, b, count, size)
        cursor.take(num_bytes)
        return indices
    indices = np.frombuffer(cursor.take(4 * count).tobytes(), "<u4").astype(np.int64)
    if count and (indices[-1] >= size or (np.diff(indices) <= 0).any()):
        raise StreamError(f"expected increasing indices below {size}; the stream is corrupt")
    return indices


class _Cursor:
    """Reads bytes from front to back."""

    def __init__(self, data: Bytes) -> None:
        self.rest = data

    @property
    def left(self) -> int:
        return len(self.rest)

    def take(self, num_bytes: int) -> Bytes:
        if num_bytes > len(self.rest):
            raise StreamError(f"expected {num_bytes} more bytes, {len(self.rest)} are left; the stream is cut short")
        taken, self.rest = self.rest[:num_bytes], self.rest[num_bytes:]
        return taken


def _open(layout: Layout, groups: Sequence[Group], data: Bytes) -> Bytes:
    """Return the tensor bytes of a stream after checking its frame, checksum and groups."""
    if len(data) < _FRAME:
        raise StreamError(f"expected a stream of at least {_FRAME} bytes, got {len(data)}")
    if (magic := data[:4].tobytes()) != MAGIC:
        raise StreamError(f"expected a stream that starts with {MAGIC!r}, got {magic!r}; use one version on both ends")
    if zlib.crc32(data[:-4].data) != int.from_bytes(data[-4:].tobytes(), "little"):
        raise StreamError(f"stream of {len(data)} bytes is truncated or corrupt: its checksum does not match")
    if data[4:8].tobytes() != _signature(layout, groups):
        raise StreamError("the stream belongs to another model or codec; give both ends the same configuration")
    return data[8:-4]


def _signature(layout: Layout, groups: Sequence[Group]) -> bytes:
    """Return a four-byte hash of everything that encoder and decoder must agree on."""
    lines = [group.describe() for group in groups]
    lines += [f"{entry.name} {'x'.join(map(str, entry.shape))}" for entry in layout.params]
    return struct.pack("<I", zlib.crc32("\n".join(lines).encode()))
