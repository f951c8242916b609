"""Admission of clients: name, certificate, digests and facts are checked before a client is registered."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from msgspec import Raw

from fedge.core.message import Outgoing
from fedge.core.net_options import NetOptions
from fedge.core.printable import printable
from fedge.net.plan import first_difference
from fedge.net.protocol import PROTOCOL, Facts, Goodbye, Hello, InputMoments, Ready, Welcome
from fedge.net.registry import Registry
from fedge.net.session import Session
from fedge.net.transport import LinkError, Peer, RefusalError

HELLO_S = 20.0
"""Time limit for a client's first message."""
BUILD_S = 3600.0
"""Time limit for a client to fetch the model and build its side."""
IDLE_BEAT_S = 30.0
MAX_PROBLEMS, MAX_PROBLEM = 20, 300
"""Limits on the number of rejected clients that are kept for display, and on the length of each reason."""


class Terms(NamedTuple):
    """What a client must match in order to join."""

    run: str  # the run's id
    plan: Raw
    initial: Outgoing  # variables and constants of the model
    digests: dict[str, str]
    shape: tuple[int, ...]
    num_outputs: int
    task: str
    num_clients: int | None  # client numbers named by data must be below this; None: any
    is_revoked: Callable[[str], bool]  # by fingerprint
    problem_of_moments: Callable[[InputMoments | None, Facts], str | None] = lambda moments, facts: None


class Admitted(NamedTuple):
    """A newly registered client."""

    number: int
    hello: Hello
    ready: Ready


class ClientAdmission:
    """Takes clients from their first message to their registration."""

    def __init__(self, terms: Terms, options: NetOptions, members: Registry) -> None:
        self._terms, self._options, self._members = terms, options, members
        self._joining: Counter[str] = Counter()  # sessions that may join, by name
        self.problems: dict[str, str] = {}  # the latest reasons why clients could not join, by name

    async def greet(self, session: Session) -> Admitted:
        """Register a client. Raises RefusalError if it may not join, LinkError if it leaves."""
        hello = await session.receive(HELLO_S)
        if not isinstance(hello, Hello):
            raise RefusalError("expected a hello as the first message")
        peer = session.peer
        session.name = hello.name
        if hello.protocol != PROTOCOL:
            raise RefusalError(
                f"expected protocol {PROTOCOL}, got {hello.protocol}; install the server's version of fedge"
            )
        if peer.name is not None and peer.name != hello.name:
            raise RefusalError(f"the client's name is {hello.name!r}, but its certificate is for {peer.name!r}")
        self.check_revoked(peer)
        with self._reserving(hello.name):
            try:
                admitted = await self._admit(session, hello)
            except (RefusalError, LinkError) as error:
                self._note_problem(hello.name, str(error))
                raise
            self.problems.pop(hello.name, None)
            return admitted

    def _note_problem(self, name: str, reason: str) -> None:
        self.problems.pop(name, None)
        self.problems[name] = printable(reason)[:MAX_PROBLEM]
        while len(self.problems) > MAX_PROBLEMS:
            del self.problems[next(iter(self.problems))]

    @contextmanager
    def _reserving(self, name: str) -> Iterator[None]:
        """Keep the number reserved for a name while any of its sessions may still join."""
        self._joining[name] += 1
        try:
            yield
        finally:
            self._joining[name] -= 1
            if not self._joining[name]:
                del self._joining[name]
                self._members.release(name)

    async def _admit(self, session: Session, hello: Hello) -> Admitted:
        peer, terms = session.peer, self._terms
        if terms.num_clients is not None and (hello.number or 0) >= terms.num_clients:
            raise RefusalError(f"expected a number below data.clients = {terms.num_clients}, got {hello.number}")
        number = await asyncio.to_thread(self._members.reserve, hello.name, hello.number)
        beat_s = min(IDLE_BEAT_S, self._options.lease_s)  # while working, a client beats several times as often
        session.send(Welcome(terms.run, number, terms.plan, terms.initial.num_bytes, beat_s))
        ready = await session.receive(BUILD_S)
        if isinstance(ready, Goodbye):
            raise LinkError(f"the client cannot take part: {printable(ready.reason)}")
        if ready is None:
            raise LinkError("the client left before it was ready")
        if not isinstance(ready, Ready):
            raise RefusalError("expected the client to be ready, got another message")
        if section := first_difference(terms.digests, ready.digests):
            raise RefusalError(
                f"the client's build differs from the server's in the {section}. Use the same version of fedge, the "
                "same files, and data of the same shape"
            )
        self._check_facts(ready.facts)
        if problem := terms.problem_of_moments(ready.moments, ready.facts):
            raise RefusalError(f"the moments of the client's inputs are impossible: {problem}")
        self.check_revoked(peer)
        await asyncio.to_thread(
            self._members.join,
            hello.name,
            peer.fingerprint,
            hello.number,
            ready.facts,
            time.time(),
            peer.address,
            peer.expires_s,
        )
        return Admitted(number, hello, ready)

    def check_revoked(self, peer: Peer) -> None:
        """Raise RefusalError if a peer's certificate is revoked."""
        if peer.fingerprint is not None and self._terms.is_revoked(peer.fingerprint):
            raise RefusalError(f"the certificate of {peer.name!r} is revoked; ask the server's operator for a new one")

    def _check_facts(self, facts: Facts) -> None:
        terms, most = self._terms, self._options.max_samples
        for name in ("shape", "num_outputs", "task"):
            expected, got = getattr(terms, name), getattr(facts, name)
            if got != expected:
                raise RefusalError(f"expected data with {name} {expected}, got {got}")
        for name in ("size", "test_size", "validation_size"):
            if getattr(facts, name) > most:
                raise RefusalError(f"expected {name} up to net.max_samples = {most}, got {getattr(facts, name)}")
