"""Untrusted text on a terminal, without control characters."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fedge.core.printable import printable


class Clean:
    """A Rich renderable with its text made printable: names of runs must not control the terminal."""

    def __init__(self, drawn: RenderableType) -> None:
        self._drawn = drawn

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in console.render(self._drawn, options):
            yield Segment(text if control else printable(text, "\n"), style, control)
