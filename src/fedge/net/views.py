"""Who is told how a networked run goes, on either side. Both may be called from several threads."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

from fedge.net.policy import OfferFacts
from fedge.net.status import ServerStatus

Verdict = Literal["received", "late", "rejected", "again", "declined", "withdrawn", "failed"]
Value = str | int | float | bool | None


class ServerObserver(Protocol):
    """What a server tells, beside the rounds that it tells a `Progress`."""

    def status(self, status: ServerStatus) -> None:
        """Tell where the run is, about once a second."""

    def event(self, event: str, **fields: Value) -> None:
        """Tell what has happened, with the names and fields of the event log."""


class Log(Protocol):
    """What keeps events."""

    def append(self, event: str, **fields: Value) -> None: ...


class ClientView(Protocol):
    """What a client tells its owner."""

    def connected(self, run: str, number: int) -> None:
        """The client has joined, or rejoined, the run of this id under this number."""

    def task(self, offer: OfferFacts) -> None:
        """Work was offered."""

    def activity(self, text: str) -> None:
        """Tell what the client does now, in a word or two: fetching, working, waiting, uploading, idle."""

    def settled(self, verdict: Verdict, reason: str = "") -> None:
        """The task last told of has ended."""

    def notice(self, text: str) -> None:
        """Something the owner should know, in one line."""

    def done(self, model: Path | None) -> None:
        """The run is complete; the trained model is in this file."""
