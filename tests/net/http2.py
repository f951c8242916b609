"""Raw HTTP/2 frames of gRPC, for peers that send what no library would."""

from __future__ import annotations

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, HEADERS, DATA, END_HEADERS, END_STREAM = 4, 1, 0, 4, 1
ACK = 1


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return an HTTP/2 frame."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def call(method: str, scheme: str = "https") -> bytes:
    """Return the start of a connection with one call and uncompressed headers; characters are bytes."""
    fields = {":method": "POST", ":scheme": scheme, ":path": f"/fedge.v1/{method}", ":authority": "localhost"}
    fields |= {"te": "trailers", "content-type": "application/grpc", "fedge-token": "task.1"}
    texts = (b"".join(bytes([len(text)]) + text.encode("latin-1") for text in pair) for pair in fields.items())
    block = b"".join(b"\x00" + text for text in texts)
    return PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, block)


def message(data: bytes, announced: int | None = None) -> bytes:
    size = len(data) if announced is None else announced
    return b"\x00" + size.to_bytes(4, "big") + data
