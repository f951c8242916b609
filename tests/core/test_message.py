"""Messages: bytes, sizes, views, reading in pieces, and rejected input."""

import random
import struct
import zlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedge.core import message
from fedge.core.errors import ModelError, StreamError
from fedge.core.layout import Tree
from fedge.core.message import NoMeta, Reader, WorkAnswer, WorkRequest, chunks, pack, size, sizes, unpack
from mutations import fuzz, mutate, outcome

MIB = 1 << 20
ANSWER = WorkAnswer(client=3, samples=20, steps=2, batches=2, grad_samples=10, loss=0.5)
REQUEST = WorkRequest("train", 7, 0.1, 10, None, 100, 2**64 - 1, 1.0)
DTYPES = st.sampled_from(["float16", "float32", "float64", "uint8", "int32", "int64"])
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
TREES = st.dictionaries(
    st.text(max_size=8), st.tuples(DTYPES, SHAPES).flatmap(lambda kind: arrays.arrays(*kind)), max_size=4
).map(lambda tree: {name: torch.from_numpy(np.asarray(value)) for name, value in tree.items()})
COUNTS = st.integers(0, 2**64 - 1)
METAS = st.builds(
    WorkRequest, st.text(max_size=8), COUNTS, st.floats(), st.none() | COUNTS, st.none() | COUNTS, COUNTS, COUNTS
    , st.floats()
) | st.builds(WorkAnswer, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, st.floats())  # fmt: skip


def sample() -> bytes:
    return pack(ANSWER, {"x": torch.tensor([1.0, 2.0]), "n": torch.tensor([[7]])})


def framed(header: bytes, body: bytes = b"", magic: bytes = b"FDG2") -> bytes:
    """Return a message with valid length, padding and checksum for any header and body."""
    head = magic + struct.pack("<I", len(header)) + header
    return sealed(head + bytes(-len(head) % 64) + body)


def sealed(data: bytes) -> bytes:
    return data + struct.pack("<I", zlib.crc32(data))


def written(entries: Any, body: bytes = b"", meta: Any = None) -> bytes:
    """Return a message with these entries and this metadata."""
    return framed(msgspec.msgpack.encode([{} if meta is None else meta, entries]), body)


def read_in_pieces(
    data: bytes, lengths: Sequence[int], kind: Any = NoMeta, max_bytes: int = message.MAX_BYTES
) -> tuple[Any, Tree]:
    """Feed a message in pieces of these lengths, repeated as needed."""
    reader = Reader[Any](kind, max_bytes)
    start, turn = 0, 0
    while start < len(data):
        stop = start + lengths[turn % len(lengths)]
        reader.feed(data[start:stop])
        start, turn = stop, turn + 1
    return reader.finish()


def bits(tree: Tree) -> dict[str, tuple[torch.dtype, torch.Size, bytes]]:
    return {name: (value.dtype, value.shape, value.numpy().tobytes()) for name, value in tree.items()}


DECODERS: dict[str, Callable[[bytes, Any], tuple[Any, Tree]]] = {
    "unpack": unpack,
    "unpack, writable": lambda data, kind: unpack(bytearray(data), kind),
    "Reader, whole": lambda data, kind: read_in_pieces(data, [len(data) or 1], kind),
    "Reader, bytes": lambda data, kind: read_in_pieces(data, [1], kind),
    "Reader, pieces": lambda data, kind: read_in_pieces(data, [7, 1, 64, 30], kind),
}


@pytest.fixture(params=DECODERS)
def decode(request: pytest.FixtureRequest) -> Callable[[bytes, Any], tuple[Any, Tree]]:
    return DECODERS[request.param]


# ---------------------------------------------------------------- there and back


@given(METAS, TREES, st.lists(st.integers(1, 90), min_size=1, max_size=5))
@settings(max_examples=150, deadline=None)
def test_round_trip(meta: msgspec.Struct, tree: Tree, lengths: list[int]) -> None:
    data = pack(meta, tree)
    assert size(meta, tree) == len(data)
    assert b"".join(chunks(meta, tree)) == data
    for found_meta, found in (unpack(data, type(meta)), read_in_pieces(data, lengths, type(meta))):
        assert repr(found_meta) == repr(meta)  # a NaN equals nothing
        assert list(found) == list(tree)
        assert bits(found) == bits(tree)  # NaN too
        assert all(value.data_ptr() % 64 == 0 for value in found.values() if value.numel())


def test_bytes_are_as_documented() -> None:
    meta = b"\x87\xa4type\xa6answer\xa6client\x03\xa7samples\x14\xa5steps\x02\xa7batches\x02\xacgrad_samples\x0a"
    meta += b"\xa4loss\xcb" + struct.pack(">d", 0.5)
    entries = b"\x92\x94\xa1x\xa7float32\x91\x02\x00\x94\xa1n\xa5int64\x92\x01\x01\x40"  # at 0 and 64
    header = b"\x92" + meta + entries
    head = b"FDG2" + struct.pack("<I", len(header)) + header
    assert 64 < len(head) < 128
    data = head + bytes(128 - len(head)) + struct.pack("<ff", 1, 2) + bytes(56) + struct.pack("<q", 7)
    assert sample() == data + struct.pack("<I", zlib.crc32(data))


def test_the_tag_selects_one_of_several_kinds() -> None:
    for meta in (ANSWER, REQUEST):
        assert unpack(pack(meta, {}), (WorkRequest, WorkAnswer))[0] == meta
    with pytest.raises(StreamError, match=r"message header: .*type"):
        unpack(pack(NoMeta(), {}), (WorkRequest, WorkAnswer))


def test_sizes_of_trees_that_have_no_values() -> None:
    metas = [NoMeta(), REQUEST, ANSWER, WorkAnswer(2**40, 1, 1, 1, 1, 0.0)]
    tree = {"x": torch.zeros(3, 5), "t": torch.zeros(1, dtype=torch.int64)}
    without = {name: value.to("meta") for name, value in tree.items()}
    assert sizes(metas, without) == [len(pack(meta, tree)) for meta in metas]


def test_chunks_are_views_of_at_most_a_mebibyte() -> None:
    tree = {"x": torch.arange(MIB, dtype=torch.int32), "y": torch.ones(3)}
    found = list(chunks(NoMeta(), tree))
    assert [len(piece) for piece in found] == [64, MIB, MIB, MIB, MIB, 12, 4]
    tree["x"][0], tree["y"][2] = 77, 5  # visible in the pieces already yielded: nothing was copied
    assert bytes(found[1][:4]) == struct.pack("<i", 77)
    assert bytes(found[5][8:]) == struct.pack("<f", 5)


@pytest.mark.parametrize("shape", [(3, 2), (1025, 513), (1, 2000, 300)])
def test_non_contiguous_slices_round_trip(shape: tuple[int, ...]) -> None:
    turned = torch.arange(float(np.prod(shape))).view(shape).transpose(-1, -2)
    row = torch.arange(4.0).expand(3, 4)
    tree = {"turned": turned, "row": row, "column": turned[..., 0]}
    assert all(len(piece) <= MIB for piece in chunks(NoMeta(), tree))
    found = unpack(pack(NoMeta(), tree), NoMeta)[1]
    assert all(torch.equal(found[name], value) for name, value in tree.items())


# ---------------------------------------------------------------- memory


def at_offset(data: bytes, offset: int) -> memoryview:
    """Return the same bytes at an address, and with a buffer, `offset` bytes after a multiple of 64."""
    room = np.zeros(len(data) + 128, np.uint8)
    start = -room.ctypes.data % 64 + offset
    room[start : start + len(data)] = np.frombuffer(data, np.uint8)
    return room.data[start : start + len(data)]


def test_an_aligned_message_is_not_copied() -> None:
    place = at_offset(sample(), 0)
    _, tree = unpack(place, WorkAnswer)
    tree["x"].fill_(9)
    with pytest.raises(StreamError, match="checksum"):
        unpack(place, WorkAnswer)


@pytest.mark.parametrize("read_only", [True, False])
def test_other_messages_are_copied(read_only: bool) -> None:
    place = at_offset(sample(), 0).toreadonly() if read_only else at_offset(sample(), 16)
    _, tree = unpack(place, WorkAnswer)
    tree["x"].fill_(9)
    assert unpack(place, WorkAnswer)[1]["x"].tolist() == [1, 2]


def test_kernel_results_do_not_depend_on_the_address_of_a_message() -> None:
    torch.manual_seed(1)
    tree = {"flag": torch.ones(1, dtype=torch.uint8), "a": torch.randn(1037), "b": torch.randn(37, 1037)}
    expected = tree["a"].sum(), tree["b"] @ tree["a"]
    data = pack(NoMeta(), tree)
    for offset in (0, 1, 2, 4, 7, 8, 16, 31, 32, 33, 63):
        _, found = unpack(at_offset(data, offset), NoMeta)
        assert [value.data_ptr() % 64 for value in found.values()] == [0, 0, 0]
        assert torch.equal(found["a"].sum(), expected[0])
        assert torch.equal(found["b"] @ found["a"], expected[1])


# ---------------------------------------------------------------- rejected input


def test_every_truncation_is_refused(decode: Callable[[bytes, Any], tuple[Any, Tree]]) -> None:
    data = sample()
    for length in range(len(data)):
        with pytest.raises(StreamError):
            decode(data[:length], WorkAnswer)
    for length in range(len(data) - 4):
        with pytest.raises(StreamError):
            decode(sealed(data[:length]), WorkAnswer)


def test_bytes_at_the_end_are_refused(decode: Callable[[bytes, Any], tuple[Any, Tree]]) -> None:
    for surplus in (b"\0", bytes(64)):
        with pytest.raises(StreamError, match=r"expected \d+ bytes, got|to end after \d+ bytes, got more"):
            decode(sample() + surplus, WorkAnswer)
        with pytest.raises(StreamError):
            decode(sealed(sample()[:-4] + surplus), WorkAnswer)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_every_changed_byte_is_refused(data: st.DataObject) -> None:
    changed = bytearray(sample())
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    for decoder in DECODERS.values():
        with pytest.raises(StreamError):
            decoder(bytes(changed), WorkAnswer)


META = msgspec.msgpack.encode(ANSWER)
X = ["x", "uint8", [1], 0]
NESTED = b"\x91" * 1000 + b"\xc0"
FILLED = {"client": 1, "samples": 1, "steps": 1, "batches": 1, "grad_samples": 1, "loss": 0.0, "type": "answer"}
META_CASES: dict[str, tuple[bytes, str]] = {
    "bytes after the header": (framed(b"\x92" + META + b"\x90\0"), "message header"),
    "invalid UTF-8 in meta": (framed(b"\x92\x81\xa1\xff\x01\x90"), "message header.*utf-8"),
    "an unknown value nested 1,000 deep": (framed(b"\x92\x81\xa1q" + NESTED + b"\x90"), "message header"),
    "a value nested 1,000 deep": (framed(b"\x92\x81\xa5steps" + NESTED + b"\x90"), "message header"),
    "meta nested 1,000 deep": (framed(b"\x92" + NESTED + b"\x90"), "message header"),
    "Ext in meta": (framed(b"\x92\x81\xa6client\xc7\x01\x05!\x90"), "message header"),
    "datetime in meta": (written([], meta={"client": datetime.now(UTC)}), "message header"),
    "unknown field": (written([], meta=FILLED | {"code": "x"}), "message header.*code"),
    "wrong type": (written([], meta=FILLED | {"steps": "1"}), "message header.*steps"),
    "another tag": (written([], meta=FILLED | {"type": "request"}), "message header.*type"),
    "missing field": (written([], meta={"client": 1}), "message header.*samples"),
}  # fmt: skip
REFUSED: dict[str, tuple[bytes, str]] = META_CASES | {
    "foreign": (b"PK\3\4" + bytes(60), "expected it to start with"),
    "version 1": (framed(b"\x92\x80\x90", magic=b"FDG1"), "expected it to start with b'FDG2', got b'FDG1'"),
    "empty header": (framed(b""), "message header"),
    "header is a map": (framed(msgspec.msgpack.encode({"meta": {}, "entries": []})), "message header"),
    "no entries": (framed(msgspec.msgpack.encode([{}])), "message header"),
    "surplus field": (framed(msgspec.msgpack.encode([{}, [], 1])), "message header"),
    "surplus field of an entry": (written([[*X, 0]], b"1"), "message header"),
    "long header": (framed(b"\x92\x80\xc6" + struct.pack(">I", MIB) + bytes(MIB)), "at most 1048568 bytes"),
    "huge header length": (b"FDG2\xff\xff\xff\xff" + bytes(120), "at most 1048568 bytes, got 4294967295"),
    "dtype": (written([["x", "object", [1], 0]], b"1"), "'x': expected one of the dtypes .*; got object"),
    "attribute of torch": (written([["x", "nn", [1], 0]], b"1"), "'x': expected one of the dtypes .*; got nn"),
    "bool": (written([["x", "bool", [1], 0]], b"1"), "'x': expected one of the dtypes .*; got bool"),
    "negative": (written([["x", "float32", [-1], 0]]), "'x': the shape .* is invalid"),
    "float": (written([["x", "float32", [1.5], 0]]), "message header"),
    "too short": (written([["x", "uint8", [2], 0]], b"1"), r"cut short"),
    "too long": (written([["x", "uint8", [2], 0]], b"123"), r"too long|got more"),
    "invalid UTF-8": (framed(b"\x92\x80\x91\x94\xa1\xff\xa5uint8\x91\x01\x00", b"1"), "message header.*utf-8"),
    "empty, 2**62 wide": (written([["x", "float32", [2**62, 0], 0]]), "is invalid or takes more than"),
    "empty, overflowing": (written([["x", "float32", [0, 2**62, 2**62], 0]]), "is invalid or takes more than"),
    "50,000 dimensions": (written([["x", "float32", [2**63] * 50_000, 0]]), "at most 8 dimensions, got 50000"),
    "65 dimensions": (written([["x", "uint8", [1] * 65, 0]], b"1"), "at most 8 dimensions, got 65"),
    "9 dimensions": (written([["x", "uint8", [1] * 9, 0]], b"1"), "at most 8 dimensions, got 9"),
    "2**64 values": (written([["x", "float32", [2**32, 2**32], 0]]), "more than 17179869184 bytes"),
    "16 GiB and a little": (
        written([["x", "uint8", [2**34], 0], ["y", "uint8", [1], 2**34]]), "expected at most 17179869184 bytes"
    ),
    "16 GiB with the frame": (written([["x", "uint8", [2**34], 0]]), "a message of at most 17179869184 bytes"),
    "200,000 empty entries": (written([[str(i), "uint8", [0], 0] for i in range(200_000)]), "at most 1048568 bytes"),
    "1,025 empty entries": (written([[str(i), "uint8", [0], 0] for i in range(1025)]), "length <= 1024"),
    "claims 2**31 entries": (framed(b"\x92\x80\xdd\x7f\xff\xff\xff"), "length <= 1024"),
    "claims 2**31 dimensions": (framed(b"\x92\x80\x91\x94\xa1x\xa5uint8\xdd\x7f\xff\xff\xff"), "message header"),
    "two of one name": (written([X, ["x", "uint8", [1], 64]], b"1" + bytes(63) + b"2"), "got a duplicate"),
    "long name": (written([["é" * 129, "uint8", [0], 0]]), "at most 256 bytes, got 258"),
    "overlap": (written([X, ["y", "uint8", [1], 0]], b"1"), "'y': expected it to start at 64, got 0"),
    "not aligned": (written([X, ["y", "uint8", [1], 1]], b"12"), "'y': expected it to start at 64, got 1"),
    "gap": (written([X, ["y", "uint8", [1], 128]], b"1" + bytes(127) + b"2"), "start at 64, got 128"),
    "gap at the start": (written([["x", "uint8", [1], 64]], bytes(64) + b"1"), "start at 0, got 64"),
    "negative start": (written([["x", "uint8", [1], -64]], b"1"), "start at 0, got -64"),
    "padding between entries": (
        written([X, ["y", "uint8", [1], 64]], b"1" + bytes(62) + b"!2"), "'y': expected zeros before it"
    ),
    "padding after the header": (sealed(b"FDG2\3\0\0\0\x92\x80\x90" + bytes(52) + b"!"), "expected zeros after it"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_bytes_that_pack_never_writes_are_rejected(name: str, decode: Callable[[bytes, Any], tuple[Any, Tree]]) -> None:
    data, complaint = REFUSED[name]
    kind = WorkAnswer if name in META_CASES else NoMeta
    with pytest.raises(StreamError, match=complaint):
        decode(data, kind)


def test_messages_at_the_limits_round_trip() -> None:
    trees: list[Tree] = [
        {"é" * 128: torch.ones(1)},
        {"x": torch.ones([1] * 8)},
        {str(i): torch.zeros(0) for i in range(1024)},
    ]
    for tree in trees:
        assert bits(unpack(pack(NoMeta(), tree), NoMeta)[1]) == bits(tree)


@pytest.mark.parametrize(
    ("tree", "complaint"),
    [
        ({"x": torch.zeros(1, dtype=torch.bool)}, "'x': expected one of the dtypes .*; got bool"),
        ({"x" * 257: torch.zeros(1)}, "at most 256 bytes, got 257"),
        ({"x": torch.zeros([1] * 9)}, "at most 8 dimensions, got 9"),
        ({str(i): torch.zeros(0) for i in range(1025)}, "at most 1024, got 1025"),
        ({"x": torch.empty(2**34 + 1, dtype=torch.uint8, device="meta")}, "more than 17179869184 bytes"),
    ],
    ids=["dtype", "name", "dimensions", "entries", "bytes"],
)
def test_the_sender_rejects_invalid_trees(tree: Tree, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        size(NoMeta(), tree)
    with pytest.raises(ModelError, match=complaint):
        next(chunks(NoMeta(), tree))


def test_the_sender_rejects_a_header_that_is_too_long() -> None:
    with pytest.raises(ModelError, match="at most 1048568 bytes"):
        pack(WorkRequest("x" * MIB, 1, 0.1, 1, None, 1, 1, 1.0), {})


def test_a_reader_rejects_large_messages_before_allocating(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = {"x": torch.zeros(1000)}
    head = next(chunks(NoMeta(), tree))
    limit = size(NoMeta(), tree)
    Reader(NoMeta, max_bytes=limit).feed(head)
    monkeypatch.setattr(message, "allocate", lambda num_bytes: pytest.fail(f"{num_bytes} bytes allocated"))
    with pytest.raises(StreamError, match=f"at most {limit - 1} bytes, got the header of one of {limit}"):
        Reader(NoMeta, max_bytes=limit - 1).feed(head)


def test_out_of_memory_is_a_stream_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(num_bytes: int) -> None:
        raise MemoryError

    monkeypatch.setattr(message, "allocate", refuse)
    with pytest.raises(StreamError, match="not enough memory for 4000 bytes"):
        Reader(NoMeta).feed(next(chunks(NoMeta(), {"x": torch.zeros(1000)})))


def test_a_reader_stays_failed_after_an_error() -> None:
    reader = Reader(NoMeta)
    for _ in range(2):
        with pytest.raises(StreamError, match="not a message"):
            reader.feed(b"PK\3\4" + bytes(8))
    with pytest.raises(StreamError, match="cut short"):
        reader.finish()


# ---------------------------------------------------------------- forged input


def parts(data: bytes) -> tuple[bytes, bytes]:
    """(header, body) of a message."""
    stop = 8 + int.from_bytes(data[4:8], "little")
    return data[8:stop], data[-(-stop // 64) * 64 : -4]


SAMPLES = [
    sample(),
    pack(REQUEST, {"x": torch.arange(30.0), "stats": torch.zeros(0), "t": torch.tensor([4])}),
    pack(ANSWER, {}),
    pack(ANSWER, {"stream:float32:y,m": torch.arange(99, dtype=torch.uint8), "h": torch.ones(2, 3).half()}),
]


def forge(rng: random.Random) -> bytes:
    """Return a modified message: in four of five cases with a valid checksum, in two also valid length and padding."""
    data = rng.choice(SAMPLES)
    header, body = parts(data)
    which = rng.randrange(5)
    if which == 0:
        return mutate(data, rng)
    if which == 1:
        return sealed(mutate(data[:-4], rng))
    if which == 2:
        return framed(mutate(header, rng), body)
    if which == 3:
        return framed(header, mutate(body, rng))
    meta, entries = msgspec.msgpack.decode(header)
    odd = [rng.choice([0, 1, 2, 63, 64, 128, 2**31, 2**62, 2**63, 2**64 - 1, -1, None, "x", 1.5]) for _ in range(9)]
    if entries and rng.random() < 0.2:
        entries[-1][2] = [rng.choice([2, 10**4, 10**5, 10**6, 10**8, 2**32]), rng.choice([0, 1, 3])]
    elif entries and rng.random() < 0.7:
        entry = rng.choice(entries)
        entry[rng.randrange(4)] = rng.choice([*odd, odd[: rng.randrange(9)], "float64", "uint8", entries[0][0]])
    else:
        meta[rng.choice([*meta, "other"])] = rng.choice([*odd, datetime.now(UTC), msgspec.msgpack.Ext(5, b"!"), odd])
    return written(entries, body, meta)


KINDS = (WorkRequest, WorkAnswer)
EXPECTED_BYTES = 50_000


def allowed(case: bytes) -> int:
    """Return the memory allowed: input or expected tensors, plus the header, whose objects exceed its bytes."""
    return max(len(case), EXPECTED_BYTES) + 30 * min(len(case), MIB)


@pytest.mark.parametrize("num_cases", [2_000, pytest.param(20_000, marks=pytest.mark.full)])
@pytest.mark.parametrize("lengths", [None, [10**9], [7, 1, 64, 30]], ids=["unpack", "Reader, whole", "Reader, pieces"])
def test_any_bytes_decode_or_are_refused(lengths: list[int] | None, num_cases: int) -> None:
    def decode(case: bytes) -> object:
        return read_in_pieces(case, lengths, KINDS, EXPECTED_BYTES) if lengths else unpack(case, KINDS)

    found = fuzz(forge, decode, StreamError, num_cases, allowed)
    checksums = sum(count for text, count in found.items() if "checksum" in text)
    assert 0 < checksums < num_cases / 4  # most cases reach the checks after it
    assert found[""] > num_cases / 50
    assert sum("'x'" in text or "'n'" in text for text in found) > 10
    assert lengths is None or any(f"at most {EXPECTED_BYTES} bytes" in text for text in found)


@pytest.mark.parametrize("name", REFUSED)
def test_former_failures_use_little_memory(name: str) -> None:
    data, _ = REFUSED[name]
    assert outcome(data, lambda case: unpack(case, KINDS), StreamError, allowed)
    assert outcome(data, lambda case: read_in_pieces(case, [999], KINDS, EXPECTED_BYTES), StreamError, allowed)
