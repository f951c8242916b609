"""Payloads on the network: split into chunks by the sender, fetched and checked by a client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from msgspec import Struct

from fedge.core import message
from fedge.core.errors import StreamError
from fedge.core.layout import Tree
from fedge.net.protocol import CHUNK_BYTES
from fedge.net.transport import ClientStreams

M = TypeVar("M", bound=Struct)


def in_chunks(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Yield the bytes of all pieces in chunks of at most CHUNK_BYTES; small pieces are joined."""
    waiting: list[bytes | memoryview] = []
    length = 0
    for piece in pieces:
        if length + len(piece) > CHUNK_BYTES:
            yield b"".join(waiting)
            waiting, length = [], 0
        waiting.append(piece)
        length += len(piece)
    yield b"".join(waiting)


async def fetch_payload(
    stream: ClientStreams, token: str, kind: type[M] | tuple[type[M], ...], num_bytes: int, checksum: int | None = None
) -> tuple[M, Tree]:
    """Fetch and return a payload; raise a StreamError if it is not the one that was announced."""
    reader: message.Reader[M] = message.Reader(kind, min(num_bytes, message.MAX_BYTES))
    async for chunk in stream.fetch(token):
        reader.feed(chunk)
    if checksum is not None and reader.checksum != checksum:
        raise StreamError("the payload is not the one that the server offered: its checksum differs")
    return reader.finish()
