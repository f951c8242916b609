"""What the runtime needs of a network: one control stream per session, and streams of chunks for payloads.

`grpc_server.py` and `grpc_client.py` provide it. Nothing else of this package knows which library carries the bytes,
so that plain HTTP could replace it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from fedge.core.errors import NetworkError
from fedge.net.rates import Rate


class Peer(NamedTuple):
    """Who is at the other end of a server's stream."""

    name: str | None  # of its certificate; None without TLS
    fingerprint: str | None  # SHA-256 of its certificate in hex
    address: str
    expires_s: float | None = None  # until its certificate ends


class Credentials(NamedTuple):
    """What one end of a TLS connection proves itself with, and whose certificates it accepts. All in PEM."""

    key: bytes
    certificate: bytes  # and those between it and the CA
    ca: bytes


class StreamLimits(NamedTuple):
    """What one peer, and all together, may take of a server."""

    sessions: int = 2  # at once, of one peer; the second is the one that replaces a session that has hung
    fetches: int = 2
    uploads: int = 2
    stall_s: float = 300.0  # a payload of which no chunk moves for so long is given up
    connections: int = 20_000  # of all peers
    # Of one peer. A round takes a fetch and an upload, an evaluation another of each, and small models have tens of
    # rounds a second.
    session_rate: Rate = Rate(5.0, 20.0)
    fetch_rate: Rate = Rate(100.0, 500.0)
    upload_rate: Rate = Rate(100.0, 500.0)


class LinkError(NetworkError):
    """The network, or the other side, has failed for now: try again."""


class DeniedError(LinkError):
    """The other side is there, and must not be talked to: wrong certificate, name or address. A person has to act."""


class RefusalError(Exception):
    """Raised by a `Service`: the peer is told this reason, and the stream ends."""


class ControlStream(Protocol):
    """The control stream of one session."""

    async def receive(self) -> bytes | None:
        """Return the next message; None once the other side has closed the stream. Raises LinkError if it broke."""

    async def send(self, data: bytes) -> None:
        """Send a message; several calls at once are sent one after another. Raises LinkError if the stream broke."""

    async def close(self) -> None:
        """End the stream. Never raises."""


class Service(Protocol):
    """What a server does for its peers; called in the transport's own event loop."""

    async def session(self, peer: Peer, stream: ControlStream) -> None:
        """Serve one session; the stream ends when it returns."""

    def fetch(self, peer: Peer, token: str) -> AsyncIterator[bytes]:
        """Yield a payload in chunks of at most CHUNK_BYTES; a RefusalError if the peer may not have it."""

    async def upload(self, peer: Peer, token: str, chunks: AsyncIterator[bytes]) -> bytes:
        """Take a payload and return the answer, a control message; a RefusalError if the peer may not send it."""


class ClientStreams(ControlStream, Protocol):
    """A client's end of a session, with the streams beside it."""

    def fetch(self, token: str) -> AsyncIterator[bytes]:
        """Yield a payload in chunks. Raises LinkError, or DeniedError with the server's reason."""

    async def upload(self, token: str, chunks: AsyncIterator[bytes]) -> bytes:
        """Send a payload and return the server's answer. Raises LinkError, or DeniedError with the server's reason."""
