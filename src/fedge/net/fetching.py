"""Fetching and checking a payload at a client."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct

from fedge.core import message
from fedge.core.errors import StreamError
from fedge.core.layout import Tree
from fedge.net.transport import ClientStreams

M = TypeVar("M", bound=Struct)


async def fetch_payload(
    stream: ClientStreams,
    token: str,
    kind: type[M] | tuple[type[M], ...],
    num_bytes: int,
    checksum: int | None = None,
) -> tuple[M, Tree]:
    """Fetch and return a payload; raise a StreamError if it is not the one that was announced."""
    reader: message.Reader[M] = message.Reader(kind, min(num_bytes, message.MAX_BYTES))
    async for chunk in stream.fetch(token):
        reader.feed(chunk)
    if checksum is not None and reader.checksum != checksum:
        raise StreamError("the payload is not the one that the server offered: its checksum differs")
    return reader.finish()
