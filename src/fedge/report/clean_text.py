"""What others wrote, on a terminal: it must not control it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fedge.core.printable import printable


class Clean:
    """What Rich draws, with the text in it made printable: names of runs must not control the terminal."""

    def __init__(self, drawn: RenderableType) -> None:
        self._drawn = drawn

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in console.render(self._drawn, options):
            yield Segment(text if control else printable(text, "\n"), style, control)
