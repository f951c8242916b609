"""IDX, the file format of MNIST and related data sets: arrays with a header."""

from __future__ import annotations

import numpy as np

from fedge.core.errors import DataError

_DTYPES: dict[int, np.dtype] = {8: np.dtype(np.uint8), 12: np.dtype(">i4")}


def read_idx(content: bytes, name: str) -> np.ndarray:
    """Return the array in an IDX file; a DataError if the content is invalid.

    The format: two zero bytes, the type, the number of dimensions, their sizes in four bytes each, then the values.
    """
    num_dims = content[3] if len(content) > 3 else 0
    start = 4 + 4 * num_dims
    if content[:2] != b"\0\0" or not num_dims or content[2] not in _DTYPES or len(content) < start:
        raise DataError(
            f"{name}: expected an IDX file of bytes or integers, got a file that starts with {content[:4]!r}"
        )
    dtype, sizes = _DTYPES[content[2]], np.frombuffer(content, ">i4", num_dims, offset=4)
    expected = start + int(np.prod(sizes, dtype=np.int64)) * dtype.itemsize
    if len(content) != expected:
        shape = "x".join(map(str, sizes))
        raise DataError(f"{name}: expected {expected} bytes for {shape} values, got {len(content)}; get it again")
    return np.frombuffer(content, dtype, offset=start).reshape(sizes)
