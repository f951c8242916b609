"""Control messages, payloads and connections that no honest client sends, drawn from a seed."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch

from fedge.core import message
from fedge.core.layout import Tree
from fedge.core.message import WorkAnswer
from fedge.core.placement import aligned
from fedge.net.protocol import Accept, Beat, Decline, Failed, Finished, FromClient, Goodbye, Hello, Ready, encode
from hostile import NUMBERS, OTHERS, TEXTS
from mutations import mutate
from net.http2 import DATA, END_STREAM, HEADERS, PREFACE, SETTINGS, call, frame
from net.http2 import message as grpc_message

VALUES: list[Any] = [
    *(number for number in NUMBERS if isinstance(number, float) or -(1 << 63) <= number < 1 << 64),
    *(text for text in TEXTS if text.isascii()),
    *OTHERS,
    b"bytes",
    "initial",
]
_WORD = struct.Struct("<I")
_DEEP = 50_000


def control(draw: random.Random, samples: Sequence[FromClient]) -> bytes:
    """Return bytes for a session's stream, made from one of some messages that fit; never empty, which ends it."""
    sample = draw.choice(samples)
    return draw.choice(_CONTROL)(draw, sample) or b"\0"


def _with_odd_value(draw: random.Random, sample: FromClient) -> bytes:
    fields = msgspec.to_builtins(sample)
    for _ in range(draw.choice([1, 1, 2])):
        fields[draw.choice([*fields, "extra"])] = draw.choice(VALUES)
    return msgspec.msgpack.encode(fields)


def _without_a_field(draw: random.Random, sample: FromClient) -> bytes:
    fields = msgspec.to_builtins(sample)
    del fields[draw.choice(list(fields))]
    return msgspec.msgpack.encode(fields)


def _nested(draw: random.Random, sample: FromClient) -> bytes:
    inside = draw.choice([b"\x91", b"\x81\xa1a", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"])
    head = draw.choice([b"", b"\x82\xa4type\xa5hello\xa8software", b"\x82\xa4type\xa5ready\xa7digests"])
    return head + inside * draw.choice([3, 2000, _DEEP]) + draw.choice([b"", b"\x01"])


def _long(draw: random.Random, sample: FromClient) -> bytes:
    text = draw.choice(["x", "é", "\0"]) * draw.choice([1001, 70_000, 600_000, 1 << 20])
    return msgspec.msgpack.encode(msgspec.to_builtins(sample) | {draw.choice(["name", "task", "reason"]): text})


_CONTROL: list[Callable[[random.Random, FromClient], bytes]] = [
    lambda draw, sample: draw.randbytes(draw.randint(1, 300)),
    *[lambda draw, sample: mutate(encode(sample), draw)] * 4,
    lambda draw, sample: encode(sample)[: draw.randrange(1, 8)],
    *[_with_odd_value] * 5,
    _without_a_field,
    _nested,
    _long,
    lambda draw, sample: msgspec.msgpack.encode(draw.choice(VALUES)),
    lambda draw, sample: encode(sample) * 2,
]


def legal(draw: random.Random, task: str, others: Sequence[str]) -> FromClient:
    """Return a message about a task, or another one, that is well formed and perhaps out of place."""
    token = draw.choice([task, task, *others, "initial", "", "w1-0-1-0-0123456789abcdef", "." * 100])
    size = draw.choice([0, 1, 31_400, 1 << 20, (1 << 53) - 1])
    return draw.choice(
        [
            Accept(token),
            Beat(token, draw.choice(["idle", "fetching", "working", "waiting", "uploading"])),
            Beat(),
            Finished(token if token != task else others[0], size, draw.random() < 0.5),
            Finished(token, draw.randrange(40_000)),
            Decline(token if token != task else "", draw.choice(["", "no", "\x1b[2J", "x" * 1000])),
            Failed(token if token != task else others[0], "broken\n\0"),
        ]
    )


def greeting(draw: random.Random, good: Hello) -> Hello:
    """Return a hello that is well formed; most are refused."""
    return draw.choice(
        [
            msgspec.structs.replace(good, protocol=draw.choice([0, 2, -1, (1 << 63) - 1])),
            msgspec.structs.replace(good, number=draw.choice([0, 1, 6, 99, (1 << 32) - 1, None])),
            msgspec.structs.replace(good, name=draw.choice(["c0", "c1", "mallory", "x" * 64])),
            msgspec.structs.replace(good, run="of-another-time", software={"fedge": "\x1b]0;x\x07", "cpu": "é" * 999}),
        ]
    )


def readiness(draw: random.Random, good: Ready) -> FromClient:
    """Return a well-formed message in the place of a ready; all are refused."""
    facts = good.facts
    return draw.choice(
        [
            Ready({}, facts),
            Ready(dict.fromkeys(good.digests, "0" * 64), facts),
            Ready(good.digests | {"\n": ""}, facts),
            Ready(good.digests, msgspec.structs.replace(facts, size=1 << 52)),
            Ready(good.digests, msgspec.structs.replace(facts, test_size=1 << 52)),
            Ready(good.digests, msgspec.structs.replace(facts, shape=(0,) * 8)),
            Ready(good.digests, msgspec.structs.replace(facts, task="values")),
            Hello(1, "c5", number=5),
            Accept("initial"),
            Beat(),
            Goodbye(""),
        ]
    )


Upload = Callable[[random.Random, WorkAnswer, Tree], bytes]


def payload(draw: random.Random, meta: WorkAnswer, tree: Tree) -> bytes:
    """Return the bytes of an answer with something wrong.

    Its vector is of a norm that the gate rejects last of all, so that no mutant counts whatever else is wrong.
    """
    return draw.choice(_PAYLOADS)(draw, meta, {**tree, "y": torch.full_like(tree["y"], 1e9)})


def seal(head: bytes, body: bytes) -> bytes:
    """Return a message with a valid checksum."""
    return head + body + _WORD.pack(zlib.crc32(body, zlib.crc32(head)))


def _parts(data: bytes) -> tuple[Any, bytes]:
    length = _WORD.unpack_from(data, 4)[0]
    return msgspec.msgpack.decode(data[8 : 8 + length]), data[aligned(8 + length) : -4]


def _with_header(header: Any, body: bytes) -> bytes:
    coded = msgspec.msgpack.encode(header)
    head = message.MAGIC + _WORD.pack(len(coded)) + coded
    return seal(head.ljust(aligned(len(head)), b"\0"), body)


def _odd_meta(draw: random.Random, meta: WorkAnswer, tree: Tree) -> bytes:
    (fields, entries), body = _parts(message.pack(meta, tree))
    fields[draw.choice([*fields, "problem", "extra"])] = draw.choice(VALUES)
    return _with_header([fields, entries], body)


def _odd_entry(draw: random.Random, meta: WorkAnswer, tree: Tree) -> bytes:
    """Change one thing of one placement; names, dtypes, shapes and starts are checked one after another."""
    (fields, entries), body = _parts(message.pack(meta, tree))
    entry = draw.choice(entries)
    part = draw.randrange(4)
    odd: list[list[Any]] = [
        ["", "x", "stats", "y" * 300, "\0", 3],
        ["float64", "float16", "int64", "uint8", "complex64", "object", "float32 ", "save", 5],
        [[], [0], [1], [7850, 1], [1, 7850], [1 << 62, 4], [-1], [7849], [1] * 9, [1 << 63], "7850", [2.5]],
        [0, 1, 64, 128, -64, 1 << 40, (1 << 64) - 1, None],
    ]
    entry[part] = draw.choice(odd[part])
    return _with_header([fields, entries], body)


def _odd_entries(draw: random.Random, meta: WorkAnswer, tree: Tree) -> bytes:
    (fields, entries), body = _parts(message.pack(meta, tree))
    odd = [[], entries * 2, entries[::-1], entries[:1], entries * 600, None, {}, [[]], [entries]]
    return _with_header([fields, draw.choice(odd)], draw.choice([body, b"", body * 2]))


def _odd_tree(draw: random.Random, meta: WorkAnswer, tree: Tree) -> bytes:
    y = tree["y"].clone()
    y[draw.randrange(len(y))] = draw.choice([float("nan"), float("inf"), float("-inf"), 3e38])
    odd: list[Tree] = [
        {**tree, "y": y},
        {**tree, "y": y.double()},
        {**tree, "y": y[:-1]},
        {**tree, "y": y.reshape(2, -1)},
        {**tree, "z": y},
        {"y": y},
        {},
        {f"v{i}": torch.ones(1) for i in range(1000)},
    ]
    return message.pack(meta, draw.choice(odd))


def _mutated(draw: random.Random, meta: WorkAnswer, tree: Tree) -> bytes:
    """Change bytes anywhere, more often near the beginning; half of the time the checksum fits."""
    data = message.pack(meta, tree)
    cut = draw.choice([16, 300, len(data)])
    changed = mutate(data[:cut], draw) + data[cut:]
    return seal(b"", changed[:-4]) if draw.random() < 0.5 else changed


def _odd_length(draw: random.Random, meta: WorkAnswer, tree: Tree) -> bytes:
    data = message.pack(meta, tree)
    odd = [data[: draw.randrange(len(data))], data + draw.randbytes(9), data * 2, b"", data[:8], data[:4], data[:-1]]
    return draw.choice(odd)


_PAYLOADS: list[Upload] = [
    _odd_meta,
    _odd_entry,
    _odd_entry,
    _odd_entries,
    _odd_tree,
    _mutated,
    _odd_length,
    lambda draw, meta, tree: message.pack(meta, tree),
    lambda draw, meta, tree: draw.randbytes(draw.randrange(5000)),
]


def token(draw: random.Random, known: Sequence[str]) -> str:
    """Return a token of nobody, or of somebody else."""
    odd = ["x", "initial ", "final", "../../secret-seed", "w1-0-1-0-0123456789abcdef", "." * 100, "." * 101, "a/b%s"]
    return draw.choice([*odd, *(each[:-1] for each in known), f"{draw.getrandbits(64):x}"])


def connection(draw: random.Random) -> bytes:
    """Return what is sent to the port: no HTTP/2, or calls that are damaged on some layer."""
    method = draw.choice(["Session", "Fetch", "Upload", "Nothing", "\xff\xfe", ""])
    good = call(method, "http") + frame(DATA, 0, 1, grpc_message(draw.randbytes(draw.randrange(40))))
    good += frame(DATA, END_STREAM, 1, grpc_message(b""))
    rest = good[len(PREFACE) :]
    kind, flags, stream = draw.randrange(12), draw.randrange(256), draw.choice([0, 1, 2, 3, (1 << 31) - 1])
    return draw.choice(
        [
            draw.randbytes(draw.randrange(1, 3000)),
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01" + draw.randbytes(200),  # a TLS hello
            PREFACE[: draw.randrange(len(PREFACE))],
            PREFACE + mutate(rest, draw),
            PREFACE + mutate(rest, draw),
            PREFACE + rest[: draw.randrange(len(rest))],
            good + frame(kind, flags, stream, draw.randbytes(draw.randrange(60))),
            PREFACE + frame(SETTINGS, 0, 0, draw.randbytes(6 * draw.randrange(20))),
            PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, flags, 1, draw.randbytes(200)),
            call(method, "http") + frame(DATA, 0, 1, grpc_message(b"x" * 9, draw.choice([1 << 21, (1 << 32) - 1]))),
        ]
    )
