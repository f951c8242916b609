"""Messages and streams that no honest client sends. Each depends only on a seed, a kind and an index."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import torch

from fedge.core.layout import Tree
from fedge.core.message import MAGIC, pack
from fedge.core.placement import aligned, arrange
from fedge.net.grpc_stream import MAX_MESSAGE_BYTES
from fedge.net.protocol import (
    MAX_CONTROL_BYTES,
    PROTOCOL,
    Accept,
    Beat,
    Decline,
    Facts,
    Failed,
    Finished,
    FromClient,
    Goodbye,
    Hello,
    InputMoments,
    Ready,
    encode,
)
from hostile import OTHERS, TEXTS
from mutations import mutate

NUMBERS = [0, -1, 1, 2, 7, 1000, 2**31, 2**32, 2**53 - 1, 2**53, 2**63, 2**64 - 1, -(2**63), 0.5, float("nan"), 1e300]
VALUES: list[Any] = [*NUMBERS, *(text for text in TEXTS if text.isprintable()), *OTHERS, b"\xff\x00", "x" * 1001]


def generator(seed: int, kind: str, index: int) -> random.Random:
    """Return the generator that determines one mutant completely."""
    return random.Random(f"{seed}/{kind}/{index}")


class Known(NamedTuple):
    """What a hostile client knows and puts into its messages."""

    name: str
    number: int
    digests: dict[str, str]
    facts: Facts
    tokens: Sequence[str] = ()  # of its current task, if any, of finished tasks, and of other clients' tasks


def messages(known: Known, rng: random.Random) -> list[FromClient]:
    """Return one valid message of every kind, about a random task that the client knows."""
    task = rng.choice([*known.tokens, "w1-0-1-2-0123456789abcdef", ""])
    moments = InputMoments(3.0, [1.0] * 4, [2.0] * 4)
    return [
        Hello(PROTOCOL, known.name, number=known.number, software={"fedge": "1", "torch": "2"}),
        Ready(known.digests, known.facts, rng.choice([None, moments])),
        Accept(task),
        Decline(task, "not now"),
        Beat(rng.choice([None, task]), "working"),
        Finished(task, rng.choice([0, 1, 1000, 1 << 40]), rng.random() < 0.5),
        Failed(task, "it broke"),
        Goodbye("so long"),
    ]


def control(message: FromClient, known: Known, rng: random.Random) -> bytes:
    """Return a mutant of a message: with changed fields or bytes, unchanged but out of place, or unrelated bytes."""
    draw = rng.random()
    if draw < 0.25:
        return encode(message)
    if draw < 0.7:
        return _encode(change(msgspec.to_builtins(message), rng), encode(message))
    if draw < 0.95:
        return mutate(encode(message), rng)
    return rng.choice(
        [
            b"",
            rng.randbytes(rng.randint(1, 300)),
            encode(message) * 2,
            encode(message) + rng.randbytes(3),
            b"\x81" * rng.choice([100, 5000]),
            b"\x91" * 3000 + b"\x01",
            b"\xdd\xff\xff\xff\xff",
            b"\xdf\xff\xff\xff\xff" + encode(message),
            encode(message).ljust(MAX_CONTROL_BYTES + rng.randint(-1, 2), b"\0"),
            _encode([msgspec.to_builtins(each) for each in messages(known, rng)], b""),
        ]
    )


def change(value: Any, rng: random.Random) -> Any:
    """Return plain values with one of them replaced, removed, renamed or added, at any depth."""
    if isinstance(value, dict) and value:
        key = rng.choice(list(value))
        rest = {name: each for name, each in value.items() if name != key}
        action = rng.randrange(8)
        if action == 0:
            return rest
        if action == 1:
            return {**rest, rng.choice(["", "type", "task", "é", "x" * 70]): value[key]}
        if action == 2:
            return {**value, rng.choice(["extra", "type", "number", ""]): rng.choice(VALUES)}
        if isinstance(value[key], dict | list) and action < 6:
            return {**value, key: change(value[key], rng)}
        return {**value, key: rng.choice(VALUES)}
    if isinstance(value, list) and value:
        where, changed = rng.randrange(len(value)), list(value)
        action = rng.randrange(6)
        if action == 0:
            del changed[where]
        elif action == 1:
            changed.insert(where, changed[where])
        elif action == 2:
            rng.shuffle(changed)
        else:
            inner = changed[where]
            changed[where] = change(inner, rng) if isinstance(inner, dict | list) else rng.choice(VALUES)
        return changed
    return rng.choice(VALUES)


def _encode(value: Any, fallback: bytes) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, UnicodeEncodeError, RecursionError, TypeError):  # msgpack cannot encode the value
        return fallback


class Stream(NamedTuple):
    """An upload as it is sent."""

    chunks: tuple[bytes, ...]
    announced: int  # bytes, in `Finished`
    ending: str = "end"  # "end", "cut": half closed without an end, "cancel", or "more": bytes after the end


Answer = tuple[msgspec.Struct, Tree]
Change = Callable[[msgspec.Struct, Tree, random.Random], Stream]


def upload(meta: msgspec.Struct, tree: Tree, rng: random.Random) -> Stream:
    """Return a mutant of an upload. No mutant is a valid message with finite values that differ from `tree`."""
    return rng.choice(_UPLOADS)(meta, tree, rng)


def _whole(data: bytes, announced: int | None = None, ending: str = "end") -> Stream:
    return Stream((data,), len(data) if announced is None else announced, ending)


def _bytes(meta: msgspec.Struct, tree: Tree, rng: random.Random) -> Stream:
    data = mutate(pack(meta, tree), rng)
    return _whole(data, rng.choice([len(data), len(data), len(pack(meta, tree))]))


def _meta(meta: msgspec.Struct, tree: Tree, rng: random.Random) -> Stream:
    return _whole(repack(change(msgspec.to_builtins(meta), rng), _entries(tree), _buffer(tree)))


def _entry(meta: msgspec.Struct, tree: Tree, rng: random.Random) -> Stream:
    entries = [list(entry) for entry in _entries(tree)]
    where = rng.randrange(4)
    entry = rng.choice(entries)
    if where == 0:
        entry[0] = rng.choice(["", "z", "../y", "y" * 300, "stats", "y\0", 3, None])
    elif where == 1:
        entry[1] = rng.choice(["float64", "float16", "int32", "int64", "uint8", "complex64", "nn", "", 5, "__class__"])
    elif where == 2:
        entry[2] = rng.choice([[], [0], [-1], [2**40], [2**63 - 1] * 8, [1] * 9, [entry[2][0] - 1], [1, *entry[2]], 7])
    else:
        entry[3] = rng.choice([0, 64, -64, 1, 2**62, 2**63, entry[3] + 64, None])
    if rng.random() < 0.3:
        entries = rng.choice([entries * 2, entries[::-1], entries * 600, [], entries[:-1]])
    return _whole(repack(msgspec.to_builtins(meta), entries, _buffer(tree)))


def _values(meta: msgspec.Struct, tree: Tree, rng: random.Random) -> Stream:
    name = rng.choice(list(tree))
    value = tree[name].clone()
    bad = rng.choice([float("nan"), float("inf"), -float("inf"), 1e30])  # the last is above `reduce.max_norm`
    if value.numel():
        value[rng.randrange(len(value))] = bad
    else:
        value = torch.full((1,), bad)
    return _whole(pack(meta, {**tree, name: value}))


def _tree(meta: msgspec.Struct, tree: Tree, rng: random.Random) -> Stream:
    name = rng.choice(list(tree))
    rest = {key: value for key, value in tree.items() if key != name}
    changed = rng.choice(
        [
            rest,
            {},
            {**tree, "extra": torch.ones(3)},
            {**rest, name: tree[name].repeat(2)},
            {**rest, name: tree[name][:0].reshape(0, 3)},
            {**rest, name: tree[name].to(torch.float16)},
            {**rest, name: tree[name].to(torch.int64)},
            {**rest, name[::-1] + "2": tree[name]},
        ]
    )
    return _whole(pack(meta, changed))


def _head(meta: msgspec.Struct, tree: Tree, rng: random.Random) -> Stream:
    """Change the prefix: magic, length of the header, checksum."""
    data = bytearray(pack(meta, tree))
    where = rng.choice([slice(0, 4), slice(4, 8), slice(-4, None)])
    data[where] = rng.choice([bytes(4), b"\xff" * 4, rng.randbytes(4), b"FDG1", b"\0\0\x10\0"])
    if where.start == 4 and rng.random() < 0.5:
        data[-4:] = struct.pack("<I", zlib.crc32(data[:-4]))
    return _whole(bytes(data))


def _chunked(meta: msgspec.Struct, tree: Tree, rng: random.Random) -> Stream:
    """Split at random chunk boundaries; drop, repeat, reorder or empty chunks, where an empty one ends the stream."""
    data = pack(meta, tree)
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice([1, 3, 20])))
    chunks = [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    where = rng.randrange(len(chunks))
    action = rng.randrange(6)
    if action == 0:
        del chunks[where]
    elif action == 1:
        chunks.insert(where, chunks[where])
    elif action == 2:
        rng.shuffle(chunks)
    elif action == 3:
        chunks.insert(where, b"")
    elif action == 4:
        chunks = [data[:1]] * 40 + [data[1:]]
    return Stream(tuple(chunks), len(data))


def _length(meta: msgspec.Struct, tree: Tree, rng: random.Random) -> Stream:
    data = pack(meta, tree)
    announced = rng.choice([0, 1, len(data) - 1, len(data) + 1, 2 * len(data), 1 << 20])
    return _whole(rng.choice([data, data[:-1], data + b"\0", data * 2, data[: len(data) // 2], b""]), announced)


def _ending(meta: msgspec.Struct, tree: Tree, rng: random.Random) -> Stream:
    data = pack(meta, tree)
    part = data[: rng.choice([0, 1, 8, len(data) // 2, len(data)])]
    return Stream((part,) if part else (), len(data), rng.choice(["cut", "cut", "cancel", "more"]))


def _oversized(meta: msgspec.Struct, tree: Tree, rng: random.Random) -> Stream:
    data = pack(meta, tree)
    return Stream((data[:100], bytes(MAX_MESSAGE_BYTES + 1)), rng.choice([len(data), 1 << 20]))


_UPLOADS: list[Change] = [_bytes] * 4 + [_meta] * 4 + [_entry] * 4 + [_chunked] * 3 + [_values, _tree, _head] * 2
_UPLOADS += [_length, _length, _ending, _ending]
oversized: Change = _oversized


def repack(meta: Any, entries: Sequence[Any], buffer: bytes) -> bytes:
    """Return a message with a correct checksum and any header."""
    header = msgspec.msgpack.encode([meta, entries])
    head = MAGIC + struct.pack("<I", len(header)) + header
    data = head.ljust(aligned(len(head)), b"\0") + buffer
    return data + struct.pack("<I", zlib.crc32(data))


def _entries(tree: Tree) -> list[tuple[Any, ...]]:
    return [(place.name, place.dtype, list(place.shape), place.start) for place in arrange(tree)]


def _buffer(tree: Tree) -> bytes:
    placed, end = b"", 0
    for place in arrange(tree):
        placed += bytes(place.start - end) + tree[place.name].numpy().tobytes()
        end = place.stop
    return placed


def token(known: Sequence[str], rng: random.Random) -> str:
    """Return the token of a finished task, of another client's, or of none, that is valid gRPC metadata."""
    drawn = rng.choice([*known, "initial", "final", "w1-0-1-2-0123456789abcdef"])
    return rng.choice(
        [
            drawn,
            drawn,
            drawn[:-1],
            drawn + "0",
            drawn.swapcase(),
            drawn.replace("-", "."),
            "",
            " ",
            "x" * 100,
            "x" * 101,
            "x" * 8000,
            "../../spool/x",
            "a/b",
            "%s%n",
            "w1-0-1-2",
            "-",
            ".",
            "..",
        ]
    )


def fetch(known: Sequence[str], rng: random.Random) -> bytes:
    """Return a mutant of a request for a payload."""
    text = token(known, rng).encode()
    if rng.random() < 0.03:
        return bytes(MAX_MESSAGE_BYTES + 1)
    return mutate(text, rng) if rng.random() < 0.4 else text
