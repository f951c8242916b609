"""Splitting payloads into chunks for the network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fedge.net.protocol import CHUNK_BYTES


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
