import struct
import zlib
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedge.core.errors import StreamError
from fedge.core.layout import Tree
from fedge.core.message import pack, size, unpack

DTYPES = st.sampled_from(["float16", "float32", "float64", "uint8", "int32", "int64"])
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
TREES = st.dictionaries(
    st.text(max_size=8), st.tuples(DTYPES, SHAPES).flatmap(lambda kind: arrays.arrays(*kind)), max_size=4
).map(lambda tree: {name: torch.from_numpy(np.asarray(value)) for name, value in tree.items()})
METAS = st.dictionaries(
    st.text(max_size=8),
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=8),
    max_size=4,
)


def sample() -> bytes:
    return pack({"round": 3, "loss": 0.5}, {"x": torch.tensor([1.0, 2.0]), "n": torch.tensor([[7]])})


def sealed(header: Any, values: bytes = b"") -> bytes:
    """A message whose checksum is right, whatever it says."""
    coded = msgspec.msgpack.encode(header)
    body = b"FDG1" + struct.pack("<I", len(coded)) + coded + values
    return body + struct.pack("<I", zlib.crc32(body))


@given(METAS, TREES)
@settings(max_examples=150, deadline=None)
def test_round_trip(meta: dict[str, Any], tree: Tree) -> None:
    message = pack(meta, tree)
    found_meta, found = unpack(message)
    assert found_meta == meta
    assert list(found) == list(tree)
    for name, value in tree.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
        assert found[name].numpy().tobytes() == value.numpy().tobytes()  # bit for bit, NaN too
    assert size(meta, tree) == len(message)


def test_bytes_are_as_documented() -> None:
    header = msgspec.msgpack.encode({"meta": {"round": 3}, "entries": [["x", "float32", [2]]]})
    body = b"FDG1" + struct.pack("<I", len(header)) + header + struct.pack("<ff", 1.5, -2.0)
    assert pack({"round": 3}, {"x": torch.tensor([1.5, -2.0])}) == body + struct.pack("<I", zlib.crc32(body))


def test_a_loss_that_is_not_a_number_travels() -> None:
    meta, _ = unpack(pack({"loss": float("nan")}, {}))
    assert np.isnan(meta["loss"])


def test_a_slice_that_is_not_contiguous_travels() -> None:
    column = torch.arange(6.0).view(2, 3)[:, 1]
    assert unpack(pack({}, {"x": column}))[1]["x"].tolist() == [1, 4]


def test_what_was_unpacked_shares_no_memory_with_the_message() -> None:
    message = sample()
    _, tree = unpack(message)
    tree["x"].fill_(9)
    assert unpack(message)[1]["x"].tolist() == [1, 2]


def test_every_truncation_is_refused() -> None:
    message = sample()
    for length in range(len(message)):
        with pytest.raises(StreamError):
            unpack(message[:length])


def test_bytes_at_the_end_are_refused() -> None:
    with pytest.raises(StreamError, match="checksum"):
        unpack(sample() + b"\0")


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_every_changed_byte_is_refused(data: st.DataObject) -> None:
    message = bytearray(sample())
    message[data.draw(st.integers(0, len(message) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(StreamError):
        unpack(bytes(message))


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (b"PK\3\4" + bytes(20), "expected it to start with"),
        (sealed(["not", "a", "table"]), "message header"),
        (sealed({"meta": {}}), "message header.*entries"),
        (sealed({"meta": {}, "entries": [], "code": "x"}), "message header.*code"),
        (sealed({"meta": {}, "entries": [["x", "object", [1]]]}), "'x': dtype object"),
        (sealed({"meta": {}, "entries": [["x", "float32", [-1]]]}), "'x'.*not valid"),
        (sealed({"meta": {}, "entries": [["x", "float32", [2]]]}, b"1234"), "'x' reaches beyond the end"),
        (sealed({"meta": {}, "entries": [["x", "uint8", [2]]]}, b"123"), "1 bytes that no entry describes"),
    ],
    ids=["magic", "list", "no entries", "surplus field", "dtype", "negative", "too short", "too long"],
)
def test_what_pack_does_not_write_is_refused(message: bytes, complaint: str) -> None:
    with pytest.raises(StreamError, match=complaint):
        unpack(message)


@pytest.mark.parametrize("shape", [[2**32, 2**32], [2**62, 3], [2**63]])
def test_absurd_shapes_are_refused(shape: list[int]) -> None:
    with pytest.raises(StreamError):
        unpack(sealed({"meta": {}, "entries": [["x", "float32", shape]]}))
