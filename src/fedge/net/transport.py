"""The transport interface: one control stream per session, and streams of chunks for payloads.

`grpc_server.py` and `grpc_client.py` implement it. The rest of the package does not depend on gRPC, so that plain HTTP
could replace it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from fedge.core.errors import NetworkError
from fedge.net.rates import Rate


class Peer(NamedTuple):
    """The client at the other end of a server's stream."""

    name: str | None  # from its certificate; None without TLS
    fingerprint: str | None  # SHA-256 of its certificate in hex
    address: str
    expires_s: float | None = None  # until its certificate expires


class Credentials(NamedTuple):
    """The key and certificate of one end of a TLS connection, and the CA that it trusts. All in PEM."""

    key: bytes
    certificate: bytes  # with any intermediate certificates
    ca: bytes


class StreamLimits(NamedTuple):
    """Limits of a server per peer and in total."""

    sessions: int = 2  # concurrent, per peer; the second may replace a session that hangs
    fetches: int = 2
    uploads: int = 2
    stall_s: float = 300.0  # a payload without progress for this long is aborted
    connections: int = 20_000  # in total
    # Per peer. A round needs a fetch and an upload, an evaluation one more of each, and small models have tens of
    # rounds per second.
    session_rate: Rate = Rate(5.0, 20.0)
    fetch_rate: Rate = Rate(100.0, 500.0)
    upload_rate: Rate = Rate(100.0, 500.0)


class LinkError(NetworkError):
    """A temporary failure of the network or the other side: retry."""


class DeniedError(LinkError):
    """A permanent failure, such as a wrong certificate, name or address: retrying cannot help."""


class RefusalError(Exception):
    """Raised by a `Service` to end the stream; the peer receives the reason."""


class ControlStream(Protocol):
    """The control stream of one session."""

    async def receive(self) -> bytes | None:
        """Return the next message; None once the other side closed the stream. Raises LinkError if it broke."""

    async def send(self, data: bytes) -> None:
        """Send a message; concurrent calls are serialised. Raises LinkError if the stream broke."""

    async def close(self) -> None:
        """End the stream. Never raises."""


class Service(Protocol):
    """The server's implementation of the calls; runs in the transport's event loop."""

    async def session(self, peer: Peer, stream: ControlStream) -> None:
        """Serve one session; the stream ends when it returns."""

    def fetch(self, peer: Peer, token: str) -> AsyncIterator[bytes]:
        """Yield a payload in chunks of at most CHUNK_BYTES; raise a RefusalError if the peer may not have it."""

    async def upload(self, peer: Peer, token: str, chunks: AsyncIterator[bytes]) -> bytes:
        """Receive a payload and return the answer, a control message; raise a RefusalError if it is not allowed."""


class ClientStreams(ControlStream, Protocol):
    """A client's end of a session, with its payload streams."""

    def fetch(self, token: str) -> AsyncIterator[bytes]:
        """Yield a payload in chunks. Raises LinkError, or DeniedError with the server's reason."""

    async def upload(self, token: str, chunks: AsyncIterator[bytes]) -> bytes:
        """Send a payload and return the server's answer. Raises LinkError, or DeniedError with the server's reason."""
