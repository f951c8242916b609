"""A checkpoint is one safetensors file: `state.*` and `kept.*` as tensors, the rest as its metadata.

The metadata has two texts. `fedge` is JSON: {"layout": 2, "meta": {...}, "round_bytes": n, "names": [...],
"trace_bytes": n, "edge_bytes": n}.
`crc32` is the checksum of that JSON and of all tensors' bytes, in the order of the names.

Layout 1 is the same without the layout number. Checkpoints are read here and not by the safetensors library, which
needs twice the file's size in memory: they are written in pieces of at most 1 MiB, and read directly into the tensors.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from io import FileIO
from math import prod
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from fedge.core.errors import RunError
from fedge.core.layout import Tree, nest, pick
from fedge.core.placement import allocate, pieces
from fedge.core.safetensors_format import DTYPES, TensorPlace, safetensors_chunks
from fedge.core.storage import reading
from fedge.runs.files import encode, name_version

LAYOUT = 2

_MAX_HEADER_BYTES = 100 << 20  # as in the library
_MAX_DIMENSIONS = 64  # as in torch


class Checkpoint(NamedTuple):
    """Everything that a run needs to resume."""

    state: Tree  # the server's
    kept: Tree  # index of the clients' private state in kept.bin
    meta: dict[str, Any]
    round_bytes: int  # length of rounds.jsonl at this point
    trace_bytes: int = 0  # and of traces.jsonl
    edge_bytes: int = 0  # and of edge.jsonl


_Length = Annotated[int, msgspec.Meta(ge=0)]


class _Numbered(msgspec.Struct):
    """The layout number, present in the header of any layout."""

    layout: int = 1


class _Header(_Numbered, forbid_unknown_fields=True, kw_only=True):
    meta: dict[str, Any]
    round_bytes: _Length
    names: list[str]  # the file stores tensors in another order
    trace_bytes: _Length = 0
    edge_bytes: _Length = 0


class _Texts(msgspec.Struct):
    fedge: str
    crc32: str


def chunks(checkpoint: Checkpoint) -> Iterator[bytes | memoryview]:
    """Return the bytes of the file: the header, then views of the tensors in pieces of at most 1 MiB."""
    tree = nest("state", checkpoint.state) | nest("kept", checkpoint.kept)
    lengths = {"round_bytes": checkpoint.round_bytes, "trace_bytes": checkpoint.trace_bytes}
    lengths["edge_bytes"] = checkpoint.edge_bytes
    text = encode(_Header(layout=LAYOUT, meta=checkpoint.meta, names=list(tree), **lengths))
    return safetensors_chunks(tree, {"fedge": text.decode(), "crc32": str(_checksum(text, tree))})


def load(file: Path) -> Checkpoint | None:
    """Return the checkpoint in a file; None if there is no such file. Raises RunError if it cannot be used."""
    with reading(file):
        try:
            opened = file.open("rb", buffering=0)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with opened:
            try:
                return _read(file, opened)
            except (ValueError, RecursionError) as error:  # raised here, by msgspec, or UnicodeDecodeError
                raise RunError(
                    f"{file} is damaged: expected a checkpoint, but {error}; "
                    f"put back a copy of the run directory, or start the run again"
                ) from None


def _read(file: Path, opened: FileIO) -> Checkpoint:
    num_bytes = os.fstat(opened.fileno()).st_size
    length = int.from_bytes(_read_bytes(opened, min(8, num_bytes)), "little")
    if num_bytes < 8 or length > min(num_bytes - 8, _MAX_HEADER_BYTES):
        raise ValueError(f"its {num_bytes} bytes are not a safetensors file")
    places = msgspec.json.decode(_read_bytes(opened, length), type=dict[str, msgspec.Raw])
    texts = msgspec.json.decode(places.pop("__metadata__", b"{}"), type=_Texts)
    raw = texts.fedge.encode()
    _check_layout(file, msgspec.json.decode(raw, type=_Numbered).layout)
    header = msgspec.json.decode(raw, type=_Header)
    found = {name: msgspec.json.decode(place, type=TensorPlace) for name, place in places.items()}
    _check_places(found, num_bytes - 8 - length)
    if sorted(header.names) != sorted(found):
        raise ValueError("its tensors differ from those listed in its metadata")
    tensors: Tree = {}
    for name, place in sorted(found.items(), key=lambda item: item[1].data_offsets):
        start, stop = place.data_offsets
        memory = allocate(stop - start)
        _fill(opened, memory.numpy().data)
        tensors[name] = memory.view(DTYPES[place.dtype]).view(place.shape)
    tree = {name: tensors[name] for name in header.names}
    if texts.crc32 != str(_checksum(raw, tree)):
        raise ValueError("its checksum does not match")
    lengths = header.round_bytes, header.trace_bytes, header.edge_bytes
    return Checkpoint(pick("state", tree), pick("kept", tree), header.meta, *lengths)


def _check_layout(file: Path, layout: int) -> None:
    if layout < 1:
        raise ValueError(f"its layout number is {layout}")
    if layout > LAYOUT:
        run = file.parent.parent
        raise RunError(
            f"{run}: its checkpoint has layout {layout}, and this fedge reads up to layout {LAYOUT}; "
            f"resume it with fedge {name_version(run)} or newer"
        )


def _check_places(tensors: dict[str, TensorPlace], num_bytes: int) -> None:
    """Raise ValueError unless the tensors fill the file exactly, so that they need no more memory than its size."""
    end = 0
    for name, place in sorted(tensors.items(), key=lambda item: item[1].data_offsets):
        start, stop = place.data_offsets
        if place.dtype not in DTYPES:
            raise ValueError(f"{name!r} has the unknown dtype {place.dtype!r}")
        if len(place.shape) > _MAX_DIMENSIONS or min(place.shape, default=0) < 0:
            raise ValueError(f"the shape of {name!r} is not valid")
        size = DTYPES[place.dtype].itemsize
        # Strides of an empty tensor must not overflow either, so a zero counts as one.
        if start != end or stop - start != prod(place.shape) * size or prod(max(n, 1) for n in place.shape) >= 1 << 60:
            raise ValueError(f"the offsets of {name!r} contradict its shape or its neighbours")
        end = stop
    if end != num_bytes:
        raise ValueError(f"its tensors take {end} of its {num_bytes} bytes")


def _read_bytes(opened: FileIO, num_bytes: int) -> bytes:
    data = bytearray(num_bytes)
    _fill(opened, memoryview(data))
    return bytes(data)


def _fill(opened: FileIO, memory: memoryview) -> None:
    while memory:
        count = opened.readinto(memory)
        if not count:
            raise ValueError("it was truncated while it was read")
        memory = memory[count:]


def _checksum(text: bytes, tree: Tree) -> int:
    checksum = zlib.crc32(text)
    for value in tree.values():
        for piece in pieces(value):
            checksum = zlib.crc32(piece, checksum)
    return checksum
