"""What travels: a header and one flat little-endian buffer, with a checksum. No pickle, no code.

offset  bytes  what
0       4      b"FDG1": magic and format version
4       4      u32: length h of the header
8       h      msgpack: {"meta": {...}, "entries": [[name, dtype, shape], ...]}
8+h     n      the entries' values, little-endian, one after another
8+h+n   4      u32: CRC32 of all before it
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from math import prod
from typing import Any

import msgspec
import numpy as np
import torch

from fedge.core.errors import StreamError
from fedge.core.layout import Tree

MAGIC = b"FDG1"
_FRAME = 12  # magic, header length, checksum
_DTYPES = ("float16", "float32", "float64", "uint8", "int32", "int64")


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    meta: dict[str, Any]
    entries: list[tuple[str, str, list[int]]]


def pack(meta: dict[str, Any], tree: Tree) -> bytes:
    """A message of a few plain values and a tree."""
    header = _header(meta, tree)
    arrays = [np.ascontiguousarray(value.detach().numpy()) for value in tree.values()]
    body = b"".join(
        [
            MAGIC,
            struct.pack("<I", len(header)),
            header,
            *(a.astype(a.dtype.newbyteorder("<")).tobytes() for a in arrays),
        ]
    )
    return body + struct.pack("<I", zlib.crc32(body))


def size(meta: dict[str, Any], tree: Tree) -> int:
    """The length of the message, without making it."""
    return sizes([meta], tree)[0]


def sizes(metas: Sequence[dict[str, Any]], tree: Tree) -> list[int]:
    """The same of messages with different values beside trees of the same kind."""
    encode = msgspec.msgpack.encode
    values = sum(value.numel() * value.element_size() for value in tree.values())
    rest = _FRAME + len(_header({}, tree)) - len(encode({})) + values
    return [rest + len(encode(meta)) for meta in metas]


def unpack(message: bytes) -> tuple[dict[str, Any], Tree]:
    """The values and the tree of a message; a StreamError for anything that `pack` did not write."""
    if len(message) < _FRAME or message[:4] != MAGIC:
        raise StreamError(f"not a message: expected it to start with {MAGIC!r}, got {bytes(message[:4])!r}")
    if zlib.crc32(message[:-4]) != struct.unpack("<I", message[-4:])[0]:
        raise StreamError(f"message of {len(message)} bytes is truncated or corrupt: its checksum does not match")
    start = 8 + struct.unpack("<I", message[4:8])[0]
    try:
        header = msgspec.msgpack.decode(message[8:start], type=_Header)
    except msgspec.MsgspecError as error:
        raise StreamError(f"message header: {error}") from None
    tree: Tree = {}
    for name, dtype, shape in header.entries:
        if dtype not in _DTYPES or any(n < 0 for n in shape):
            raise StreamError(f"message entry {name!r}: dtype {dtype} and shape {shape} are not valid")
        kind = np.dtype(dtype).newbyteorder("<")
        stop = start + kind.itemsize * prod(shape)  # Python's integers do not overflow
        if stop > len(message) - 4:
            raise StreamError(f"message entry {name!r} reaches beyond the end of the message")
        values = np.frombuffer(message[start:stop], kind).astype(kind.newbyteorder("="))
        tree[name], start = torch.from_numpy(values.reshape(shape)), stop
    if start != len(message) - 4:
        raise StreamError(f"message has {len(message) - 4 - start} bytes that no entry describes")
    return header.meta, tree


def _header(meta: dict[str, Any], tree: Tree) -> bytes:
    for name, value in tree.items():
        if str(value.dtype).removeprefix("torch.") not in _DTYPES:
            raise TypeError(f"{name!r} cannot travel as {value.dtype}: expected one of {', '.join(_DTYPES)}")
    entries = [(name, str(value.dtype).removeprefix("torch."), list(value.shape)) for name, value in tree.items()]
    return msgspec.msgpack.encode(_Header(meta, entries))
