"""The message format: a typed header and one flat little-endian buffer, with a checksum. No pickle, no code.

offset  bytes  what
0       4      b"FDG2": magic and format version
4       4      u32: length h of the header
8       h      msgpack: [meta, [[name, dtype, shape, start], ...]]
8+h     p      zeros up to the next multiple of 64; the buffer begins at 8+h+p
8+h+p   n      the entries' values, each `start` bytes after the beginning of the buffer, zeros between them
8+h+p+n 4      u32: CRC32 of everything before it

Each entry starts at the next multiple of 64 after the previous one; readers reject any other position.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from math import prod
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, Union

import msgspec
import numpy as np
import torch
from msgspec import Meta, Raw, Struct
from torch import Tensor

from fedge.core.errors import ModelError, StreamError
from fedge.core.layout import Tree
from fedge.core.placement import ALIGNMENT, PIECE_BYTES, Placements, aligned, allocate, arrange, end_of, pieces
from fedge.core.question import Measure

MAGIC = b"FDG2"
MAX_ENTRIES = 1024
MAX_NAME_BYTES = 256
MAX_DIMENSIONS = 8
MAX_HEADER_BYTES = (1 << 20) - 8  # with magic and length, 1 MiB
MAX_BYTES = 16 << 30
DTYPES = ("float16", "float32", "float64", "uint8", "int32", "int64")

_WORD = struct.Struct("<I")
_PREFIX_BYTES = 8  # magic and header length
_CHECKSUM_BYTES = 4
_QUOTED = 200  # characters of untrusted text that an error may quote

Buffer = bytes | bytearray | memoryview
M = TypeVar("M", bound=Struct)


class WorkRequest(Struct, frozen=True, forbid_unknown_fields=True, tag="request"):
    """A server's request to a cohort: identical for every client, so that it can be broadcast."""

    work: str
    round: int
    rate: float
    num_steps: int | None
    num_epochs: int | None
    num_clients: int
    seed: int
    server_rate: float


class WorkAnswer(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="answer"):
    """The metadata that accompanies a client's upload."""

    client: int
    samples: int
    steps: int
    batches: int
    grad_samples: int
    loss: float
    problem: str = ""  # why there is no valid upload; empty: there is one


class EvaluationRequest(Struct, frozen=True, forbid_unknown_fields=True, tag="question"):
    """A request to evaluate a model: what to measure, and in which round."""

    measure: Measure
    work: str | None
    round: int
    rate: float
    num_steps: int | None
    num_epochs: int | None
    num_clients: int
    seed: int
    server_rate: float


class EvaluationAnswer(Struct, frozen=True, forbid_unknown_fields=True, tag="sums"):
    """The metadata of an evaluation answer; the entries of the message are the sums."""

    client: int


class NoMeta(Struct, frozen=True, forbid_unknown_fields=True):
    """The metadata of a message that only carries a tree."""


class _Header(Struct, array_like=True, forbid_unknown_fields=True):
    meta: Raw
    entries: Annotated[Placements, Meta(max_length=MAX_ENTRIES)]


class _Opened(NamedTuple):
    """The contents of the bytes before the buffer."""

    meta: Any
    placements: Placements
    num_bytes: int  # of the whole message


def pack(meta: Struct, tree: Tree) -> bytes:
    """Return metadata and a tree as one message."""
    return b"".join(chunks(meta, tree))


def chunks(meta: Struct, tree: Tree) -> Iterator[bytes | memoryview]:
    """Yield the bytes of `pack` in pieces of at most 1 MiB: views of the tensors, which must not change meanwhile."""
    placements = _place(tree)
    checksum = 0
    for piece in chain([_head(meta, placements)], _body(tree, placements)):
        checksum = zlib.crc32(piece, checksum)
        yield piece
    yield _WORD.pack(checksum)


class Outgoing:
    """A message to be sent several times, with known length and checksum; its bytes are views of the tensors.

    The tensors must not change while it is in use.
    """

    def __init__(self, meta: Struct, tree: Tree) -> None:
        self._tree, self._placements = tree, _place(tree)
        self._head = _head(meta, self._placements)
        self.num_bytes, self.checksum = 0, 0
        for piece in chain([self._head], _body(tree, self._placements)):
            self.num_bytes += len(piece)
            self.checksum = zlib.crc32(piece, self.checksum)
        self.num_bytes += _CHECKSUM_BYTES

    def __iter__(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes in pieces of at most 1 MiB."""
        yield self._head
        yield from _body(self._tree, self._placements)
        yield _WORD.pack(self.checksum)


def size(meta: Struct, tree: Tree) -> int:
    """Return the length in bytes of a message without building it; the tree may be on the meta device."""
    return sizes([meta], tree)[0]


def sizes(metas: Sequence[Struct], tree: Tree) -> list[int]:
    """Like `size`, for several messages whose trees have the same names, dtypes and shapes."""
    encode, placements = msgspec.msgpack.encode, _place(tree)
    before = _PREFIX_BYTES + len(encode(_Header(Raw(), placements)))
    after = end_of(placements) + _CHECKSUM_BYTES
    return [aligned(before + len(encode(meta))) + after for meta in metas]


def unpack(message: Buffer, kind: type[M] | tuple[type[M], ...]) -> tuple[M, Tree]:
    """Return the metadata, of this type or one of these tagged types, and the tree.

    The tensors are views of the message if its memory is writeable and its buffer is aligned to 64 bytes, otherwise
    views of an aligned copy. Raises StreamError for anything that `pack` does not write.
    """
    data = memoryview(message)
    start = _head_bytes(data)
    opened = _open(data[:start], kind, MAX_BYTES)
    if len(data) != opened.num_bytes:
        raise StreamError(f"message is cut short or too long: expected {opened.num_bytes} bytes, got {len(data)}")
    body = data[start:-_CHECKSUM_BYTES]
    here = np.asarray(body)
    if here.flags.writeable and here.ctypes.data % ALIGNMENT == 0:
        memory, checksum = torch.from_numpy(here), zlib.crc32(data[:-_CHECKSUM_BYTES])
    else:
        memory = _allocate(len(body))
        checksum = _receive(body, memory.numpy().data, zlib.crc32(data[:start]))
    return opened.meta, _close(opened, memory, checksum, data[-_CHECKSUM_BYTES:])


class Reader(Generic[M]):
    """Reads one message from pieces of any size, as they arrive, into a buffer aligned to 64 bytes.

    The header states the buffer's size. Messages of more than `max_bytes` are rejected before the buffer is allocated.
    """

    def __init__(self, kind: type[M] | tuple[type[M], ...], max_bytes: int = MAX_BYTES) -> None:
        self._kind, self._max_bytes = kind, min(max_bytes, MAX_BYTES)
        self._head, self._tail = bytearray(), bytearray()
        self._opened: _Opened | None = None
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._num_filled = 0
        self._checksum = 0

    def feed(self, piece: Buffer) -> None:
        """Add the next bytes; raises StreamError as soon as the message cannot be valid."""
        rest = memoryview(piece)
        if self._opened is None:
            rest = _move(rest, self._head, _PREFIX_BYTES)
            if len(self._head) < _PREFIX_BYTES:
                return
            num_bytes = _head_bytes(self._head)
            rest = _move(rest, self._head, num_bytes)
            if len(self._head) < num_bytes:
                return
            opened = _open(self._head, self._kind, self._max_bytes)
            self._memory, self._checksum = _allocate(end_of(opened.placements)), zlib.crc32(self._head)
            self._opened = opened
        part = rest[: len(self._memory) - self._num_filled]
        target = self._memory.numpy().data[self._num_filled : self._num_filled + len(part)]
        self._checksum = _receive(part, target, self._checksum)
        self._num_filled += len(part)
        rest = _move(rest[len(part) :], self._tail, _CHECKSUM_BYTES)
        if rest:
            raise StreamError(f"expected the message to end after {self._opened.num_bytes} bytes, got more")

    @property
    def checksum(self) -> int:
        """CRC32 of the bytes received so far, excluding the checksum at the end of the message."""
        return self._checksum

    def finish(self) -> tuple[M, Tree]:
        """Return the metadata and the tree; raises StreamError if the message is incomplete or corrupt."""
        if self._opened is None or len(self._tail) < _CHECKSUM_BYTES:
            found = len(self._head) + self._num_filled + len(self._tail)
            raise StreamError(f"message is cut short: it ends after {found} bytes")
        return self._opened.meta, _close(self._opened, self._memory, self._checksum, self._tail)


def _place(tree: Tree) -> Placements:
    placements = arrange(tree)
    if flaw := _flaw(placements):
        raise ModelError(f"the vectors cannot be sent in a message: {flaw}")
    return placements


def _head(meta: Struct, placements: Placements) -> bytes:
    """Return all bytes before the buffer."""
    header = msgspec.msgpack.encode(_Header(Raw(msgspec.msgpack.encode(meta)), placements))
    if len(header) > MAX_HEADER_BYTES:
        raise ModelError(f"message header: expected at most {MAX_HEADER_BYTES} bytes, got {len(header)}")
    head = MAGIC + _WORD.pack(len(header)) + header
    return head.ljust(aligned(len(head)), b"\0")


def _body(tree: Tree, placements: Placements) -> Iterator[bytes | memoryview]:
    end = 0
    for place in placements:
        if place.start > end:
            yield bytes(place.start - end)
        yield from pieces(tree[place.name])
        end = place.stop


def _head_bytes(data: Buffer) -> int:
    """Return the offset of a message's buffer from the first bytes of the message."""
    if len(data) < _PREFIX_BYTES or bytes(data[:4]) != MAGIC:
        raise StreamError(f"not a message: expected it to start with {MAGIC!r}, got {bytes(data[:4])!r}")
    (num_bytes,) = _WORD.unpack(data[4:_PREFIX_BYTES])
    if num_bytes > MAX_HEADER_BYTES:
        raise StreamError(f"message header: expected at most {MAX_HEADER_BYTES} bytes, got {num_bytes}")
    return aligned(_PREFIX_BYTES + num_bytes)


def _open(head: Buffer, kind: type[Struct] | tuple[type[Struct], ...], max_bytes: int) -> _Opened:
    """Decode and check all bytes before the buffer."""
    stop = _PREFIX_BYTES + _WORD.unpack(head[4:_PREFIX_BYTES])[0]
    kinds: Any = Union[kind] if isinstance(kind, tuple) else kind  # noqa: UP007 - members are known only at runtime
    try:
        header = msgspec.msgpack.decode(head[_PREFIX_BYTES:stop], type=_Header)
        meta = msgspec.msgpack.decode(header.meta, type=kinds)
    except (ValueError, RecursionError) as error:  # msgspec's errors and UnicodeDecodeError are ValueErrors
        raise StreamError(f"message header: {str(error)[:_QUOTED]}") from None
    if flaw := _flaw(header.entries):
        raise StreamError(f"message {flaw}")
    if any(head[stop:]):
        raise StreamError("message header: expected zeros after it, up to a multiple of 64 bytes")
    num_bytes = aligned(stop) + end_of(header.entries) + _CHECKSUM_BYTES
    if num_bytes > max_bytes:
        raise StreamError(f"expected a message of at most {max_bytes} bytes, got the header of one of {num_bytes}")
    return _Opened(meta, header.entries, num_bytes)


def _flaw(placements: Placements) -> str | None:
    """Return which limit of the format the entries violate; None if they are valid."""
    if len(placements) > MAX_ENTRIES:
        return f"entries: expected at most {MAX_ENTRIES}, got {len(placements)}"
    if len({place.name for place in placements}) < len(placements):
        return "entries: expected distinct names, got a duplicate"
    end = 0
    for place in placements:
        name = f"entry {place.name[:MAX_NAME_BYTES]!r}"
        if (length := len(place.name.encode())) > MAX_NAME_BYTES:
            return f"{name}: expected a name of at most {MAX_NAME_BYTES} bytes, got {length}"
        if place.dtype not in DTYPES:
            return f"{name}: expected one of the dtypes {', '.join(DTYPES)}; got {place.dtype[:_QUOTED]}"
        if len(place.shape) > MAX_DIMENSIONS:
            return f"{name}: expected at most {MAX_DIMENSIONS} dimensions, got {len(place.shape)}"
        # The strides of an empty tensor must not overflow either, so a zero counts as one.
        if min(place.shape, default=0) < 0 or prod(max(n, 1) for n in place.shape) * place.kind.itemsize > MAX_BYTES:
            return f"{name}: the shape {list(place.shape)} is invalid or takes more than {MAX_BYTES} bytes"
        if place.start != aligned(end):
            return f"{name}: expected it to start at {aligned(end)}, got {place.start}"
        end = place.stop
    return None if end <= MAX_BYTES else f"entries: expected at most {MAX_BYTES} bytes, got {end}"


def _allocate(num_bytes: int) -> Tensor:
    try:
        return allocate(num_bytes)
    except MemoryError:
        raise StreamError(f"message: not enough memory for {num_bytes} bytes") from None


def _move(source: memoryview, target: bytearray, length: int) -> memoryview:
    """Move bytes from `source` until `target` has this length; return the rest of the source."""
    count = max(0, length - len(target))
    target += source[:count]
    return source[count:]


def _receive(source: memoryview, target: memoryview, checksum: int) -> int:
    """Copy bytes and update their checksum, in pieces small enough to stay in the cache."""
    for start in range(0, len(source), PIECE_BYTES):
        piece = source[start : start + PIECE_BYTES]
        checksum = zlib.crc32(piece, checksum)
        target[start : start + len(piece)] = piece
    return checksum


def _close(opened: _Opened, memory: Tensor, checksum: int, expected: Buffer) -> Tree:
    """Return the tree in a buffer; raises StreamError if the checksum does not match."""
    if checksum != _WORD.unpack(expected)[0]:
        raise StreamError(f"message of {opened.num_bytes} bytes is corrupt: its checksum does not match")
    end = 0
    for place in opened.placements:
        if place.start > end and memory[end : place.start].any():
            raise StreamError(f"message entry {place.name!r}: expected zeros before it")
        end = place.stop
    return {place.name: place.view(memory) for place in opened.placements}
