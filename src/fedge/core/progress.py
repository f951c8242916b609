"""How a long job tells what it is doing, without knowing who listens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Progress(Protocol):
    """What a listener is told of one run."""

    def begin(self, title: str, first_round: int, num_rounds: int) -> None:
        """A run starts, or goes on, with this round."""

    def round(self, record: Mapping[str, Any]) -> None:
        """A round has been recorded."""

    def notice(self, text: str) -> None:
        """Something a person should know, in one line."""

    def end(self, summary: Mapping[str, Any]) -> None:
        """The run is complete."""


class Silent:
    """Listens to nothing."""

    def begin(self, title: str, first_round: int, num_rounds: int) -> None:
        pass

    def round(self, record: Mapping[str, Any]) -> None:
        pass

    def notice(self, text: str) -> None:
        pass

    def end(self, summary: Mapping[str, Any]) -> None:
        pass
