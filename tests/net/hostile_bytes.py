"""Bytes that are not valid gRPC, HTTP/2 or TLS, and how the server ends such connections."""

from __future__ import annotations

import asyncio
import random
import ssl
from contextlib import suppress
from pathlib import Path

from fedge.net.transport import Credentials
from mutations import mutate
from net import mutants
from net.echo import HOST
from net.hostile_peers import Fate, Tally, watch
from net.http2 import DATA, END_STREAM, PREFACE, SETTINGS, call, frame, message

PING, RESET, GOAWAY = 6, 3, 7
_PINGS = [frame(PING, 0, 0, b"campaign") * 100] * 20
"""Longer than the longest frame, so that even an unfinished frame is completed and the server reacts."""
_JUNK = [bytes(2000)] * 20  # longer than a TLS record
_PAUSE_S = 0.05  # for an answer: sending more to a closed connection may destroy the answer
_ALERT = 21  # a TLS record type


def tls_context(credentials: Credentials, file: Path) -> ssl.SSLContext:
    """Return a TLS context for a client with this certificate, which is written to `file`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=credentials.ca.decode())
    context.set_alpn_protocols(["h2"])
    file.write_bytes(credentials.key + credentials.certificate)
    context.load_cert_chain(file)
    return context


async def send_http2(port: int, context: ssl.SSLContext, tally: Tally) -> None:
    """Send mutated frames of a call after a valid handshake, each on a new connection."""
    while (index := tally.draw("http2")) is not None:
        rng = mutants.generator(tally.seed, "http2", index)
        data = await exchange(port, [_frames(rng), *_PINGS], context, f"http2 {index}")
        tally.note("http2", index, _reaction(data))


async def send_raw(port: int, tally: Tally) -> None:
    """Send mutated first bytes of a handshake, plain HTTP, and noise, each on a new connection."""
    while (index := tally.draw("raw")) is not None:
        rng = mutants.generator(tally.seed, "raw", index)
        data = await exchange(port, [_first_bytes(rng), *_JUNK], None, f"raw {index}")
        alert = bool(data) and data[0] == _ALERT
        tally.note("raw", index, Fate("alert" if alert else "closed", "the handshake failed"))


async def leave_half_open(port: int, tally: Tally) -> None:
    """Open connections with an unfinished handshake, which the server must close by itself."""

    async def wait(index: int) -> None:
        rng = mutants.generator(tally.seed, "half open", index)
        hello = _client_hello()
        await exchange(port, [hello[: rng.randrange(len(hello))]], None, f"half open {index}")
        tally.note("half open", index, Fate("closed", "the handshake took too long"))

    drawn = iter(lambda: tally.draw("half open"), None)
    await asyncio.gather(*[wait(index) for index in drawn])


class _Collector(asyncio.Protocol):
    """Collects all received bytes, even if the connection is then reset, when a StreamReader would lose them."""

    def __init__(self) -> None:
        self.data = b""
        self.lost = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()


async def exchange(port: int, pieces: list[bytes], context: ssl.SSLContext | None, what: str) -> bytes:
    """Send pieces until the server closes the connection, and return all that it sent."""
    async with watch(what):
        transport, collector = await asyncio.get_running_loop().create_connection(_Collector, HOST, port, ssl=context)
        try:
            for piece in pieces:
                transport.write(piece)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_PAUSE_S):
                        await collector.lost.wait()
                        break
            await collector.lost.wait()
        finally:
            transport.abort()
    return collector.data


def _reaction(data: bytes) -> Fate:
    """Return the outcome in a server's frames: the last GOAWAY, a reset, or answers to pings."""
    found, start = Fate("closed", "the connection was reset"), 0
    while start + 9 <= len(data):
        size, kind = int.from_bytes(data[start : start + 3], "big"), data[start + 3]
        payload = data[start + 9 : start + 9 + size]
        if kind == GOAWAY:
            code = int.from_bytes(payload[4:8], "big")
            return Fate("goaway", payload[8:].decode("ascii", "replace") or f"error {code}")
        start += 9 + size
    return found


def _frames(rng: random.Random) -> bytes:
    good = call(rng.choice(["Session", "Upload", "Fetch", "Other"]))
    good += frame(DATA, 0, 1, message(b"hello")) + frame(DATA, END_STREAM, 1, message(b""))
    good += frame(SETTINGS, 0, 0, bytes([0, rng.randrange(8)]) + rng.randbytes(4)) if rng.random() < 0.3 else b""
    good += frame(rng.randrange(12), rng.randrange(256), rng.choice([0, 1, 3]), rng.randbytes(rng.randrange(40)))
    kept = len(PREFACE) if rng.random() < 0.9 else 0
    return good[:kept] + mutate(good[kept:], rng)


def _first_bytes(rng: random.Random) -> bytes:
    hello = _client_hello()
    return rng.choice(
        [
            mutate(hello, rng),
            mutate(hello, rng),
            hello[: rng.randrange(len(hello))],
            hello + mutate(hello, rng),
            rng.randbytes(rng.randrange(1, 4000)),
            call("Session"),
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"\x16\x03\x01\xff\xff" + rng.randbytes(50),
            b"",
        ]
    )


def _client_hello() -> bytes:
    """Return the first message of a TLS client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    handshake = context.wrap_bio(incoming, outgoing)
    with suppress(ssl.SSLWantReadError):
        handshake.do_handshake()
    return outgoing.read()
