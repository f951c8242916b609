"""Interfaces that report the progress of a networked run, at server and client. They must be thread-safe."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

from fedge.net.events import Value as Value
from fedge.net.policy import OfferFacts
from fedge.net.status import ServerStatus

Verdict = Literal["received", "late", "rejected", "again", "declined", "withdrawn", "failed"]


class ServerObserver(Protocol):
    """Receives a server's status and events; its rounds go to a `Progress`."""

    def status(self, status: ServerStatus) -> None:
        """Called about once per second with the run's status."""

    def event(self, event: str, **fields: Value) -> None:
        """Called for each event, with the names and fields of the event log."""


class Log(Protocol):
    """A log of events."""

    def append(self, event: str, **fields: Value) -> None: ...


class ClientView(Protocol):
    """Reports a client's progress to its user."""

    def connected(self, run: str, number: int) -> None:
        """The client joined, or rejoined, the run with this id under this number."""

    def task(self, offer: OfferFacts) -> None:
        """Work was offered."""

    def activity(self, text: str) -> None:
        """The client's activity changed, such as to fetching, working, waiting, uploading or idle."""

    def settled(self, verdict: Verdict, reason: str = "") -> None:
        """The last reported task ended."""

    def notice(self, text: str) -> None:
        """A one-line message for the user."""

    def done(self, model: Path | None) -> None:
        """The run is complete; `model` is the file with the trained model."""
