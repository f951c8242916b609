"""Writing of safetensors files in pieces: the library's own writer needs memory for the whole file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import torch

from fedge.core.layout import Tree
from fedge.core.placement import pieces

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class TensorPlace(msgspec.Struct, forbid_unknown_fields=True):
    """One tensor of a safetensors file; offsets count from the end of the file's header."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def safetensors_chunks(tree: Tree, metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of the file: the header, then views of the tensors of at most 1 MiB each."""
    # Largest element size first, so that every tensor is aligned to its element size, as some readers require.
    order = sorted(tree, key=lambda name: -tree[name].element_size())
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name in order:
        value = tree[name]
        start, end = end, end + value.nbytes
        header[name] = TensorPlace(_NAMES[value.dtype], list(value.shape), (start, end))
    written = msgspec.json.encode(header)
    written = written.ljust(-(-len(written) // 8) * 8)
    yield len(written).to_bytes(8, "little") + written
    for name in order:
        yield from pieces(tree[name])
