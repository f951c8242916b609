"""The events by which long jobs report progress to a listener."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Progress(Protocol):
    """A listener for the events of one run."""

    def begin(self, title: str, first_round: int, num_rounds: int) -> None:
        """A run starts or resumes with this round."""

    def round(self, record: Mapping[str, Any]) -> None:
        """A round has been recorded."""

    def notice(self, text: str) -> None:
        """A one-line notice for the user."""

    def end(self, summary: Mapping[str, Any]) -> None:
        """The run is complete."""


class Silent:
    """Ignores all events."""

    def begin(self, title: str, first_round: int, num_rounds: int) -> None:
        pass

    def round(self, record: Mapping[str, Any]) -> None:
        pass

    def notice(self, text: str) -> None:
        pass

    def end(self, summary: Mapping[str, Any]) -> None:
        pass
