"""A checkpoint is one safetensors file: `state.*` and `kept.*` as tensors, the rest as its metadata.

The metadata has two texts. `fedge` is JSON: {"meta": {...}, "round_bytes": n, "names": [...], "trace_bytes": n,
"edge_bytes": n}.
`crc32` is the checksum of that JSON and of all tensors' bytes, in the order of the names.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors

from fedge.core.errors import RunError
from fedge.core.layout import Tree, nest, pick
from fedge.runs.files import encode, read_bytes


class Checkpoint(NamedTuple):
    """All that a run needs to go on."""

    state: Tree  # the server's
    kept: Tree  # where each client's private state lies in kept.bin
    meta: dict[str, Any]
    round_bytes: int  # length of rounds.jsonl at this point
    trace_bytes: int = 0  # and of traces.jsonl
    edge_bytes: int = 0  # and of edge.jsonl


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    meta: dict[str, Any]
    round_bytes: int
    names: list[str]  # safetensors has an order of its own
    trace_bytes: int = 0
    edge_bytes: int = 0


def pack(checkpoint: Checkpoint) -> bytes:
    """The bytes of the file."""
    tree = nest("state", checkpoint.state) | nest("kept", checkpoint.kept)
    # safetensors takes no tensors that share memory, and entries of a state may
    tree = {name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in tree.items()}
    _, _, meta, *lengths = checkpoint
    header = encode(_Header(meta, lengths[0], list(tree), *lengths[1:]))
    return safetensors.save(tree, {"fedge": header.decode(), "crc32": str(_checksum(header, tree))})


def load(file: Path) -> Checkpoint | None:
    """The checkpoint in a file; None if there is no such file."""
    data = read_bytes(file)
    if data is None:
        return None
    try:
        return _unpack(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise RunError(
            f"{file} is damaged: expected a checkpoint, but {error}; "
            f"put back a copy of the run directory, or start the run again"
        ) from None


def _unpack(data: bytes) -> Checkpoint:
    found = safetensors.load(data)
    start = 8 + int.from_bytes(data[:8], "little")
    texts = msgspec.json.decode(data[8:start])["__metadata__"]
    raw = texts["fedge"].encode()
    header = msgspec.json.decode(raw, type=_Header)
    # Cloned into memory aligned as torch does it: kernels may sum in an order that depends on alignment.
    tree = {name: found[name].clone() for name in header.names}
    if texts["crc32"] != str(_checksum(raw, tree)):
        raise ValueError("its checksum does not match")
    lengths = header.round_bytes, header.trace_bytes, header.edge_bytes
    return Checkpoint(pick("state", tree), pick("kept", tree), header.meta, *lengths)


def _checksum(header: bytes, tree: Tree) -> int:
    checksum = zlib.crc32(header)
    for value in tree.values():
        checksum = zlib.crc32(value.reshape(-1).view(torch.uint8).numpy().data, checksum)
    return checksum
