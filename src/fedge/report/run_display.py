"""The progress of a run in training: a bar on a terminal or in a notebook, lines at intervals elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from html import escape
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedge.core.printable import printable
from fedge.report.clean_text import Clean
from fedge.report.run_totals import RunTotals
from fedge.runs import Run


class Screen(Protocol):
    """A display of watched runs."""

    interval_s: float  # minimum seconds between two updates of a run

    def show(self, picture: RunPicture) -> None: ...
    def notice(self, text: str) -> None: ...
    def close(self) -> None:
        """Keep the last state of this run on display; the next update is of another run."""


class RunPicture(NamedTuple):
    """A run at one moment."""

    title: str
    round: int
    num_rounds: int
    time: str
    line: str


class Bar:
    """Two lines for each run, redrawn in place."""

    interval_s = 0.1

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def show(self, picture: RunPicture) -> None:
        self._update(draw_run(picture))

    def notice(self, text: str) -> None:
        self._console.print(printable(text, "\n\t"), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _update(self, drawn: RenderableType) -> None:
        if self._live is None:
            # Drawn on request: a refresh thread would interfere with engines that fork.
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(Clean(drawn), refresh=True)


class RunLines:
    """Plain text for files, pipes and terminals that cannot move their cursor."""

    interval_s = 2.0

    def show(self, picture: RunPicture) -> None:
        said = [f"round {picture.round}/{picture.num_rounds}", picture.line, picture.time]
        self.notice(f"{picture.title}: {', '.join(filter(None, said))}")

    def notice(self, text: str) -> None:
        _tell(text)

    def close(self) -> None:
        pass


class NotebookBar:
    """Two lines in the output of a notebook cell, replaced while the run trains; requires only IPython."""

    interval_s = 0.5

    def __init__(self) -> None:
        self._shown: Any = None

    def show(self, picture: RunPicture) -> None:
        display: Any = import_module("IPython.display")
        head = f"{picture.title}  round {picture.round}/{picture.num_rounds}  {picture.time}"
        texts = [printable(text).rstrip() for text in (head, picture.line)]
        bar = f'<progress value="{picture.round}" max="{picture.num_rounds}"></progress>'
        page = f"{bar} {escape(texts[0])}<br><small>{escape(texts[1])}</small>"
        drawn = {"text/html": page, "text/plain": "\n".join(texts)}
        if self._shown is None:
            self._shown = display.display(drawn, raw=True, display_id=True)
        else:
            self._shown.update(drawn, raw=True)

    def notice(self, text: str) -> None:
        _tell(text)

    def close(self) -> None:
        self._shown = None


class Nothing:
    """Shows nothing."""

    interval_s = inf

    def show(self, picture: RunPicture) -> None:
        pass

    def notice(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


class Watch:
    """Passes the progress of a run to a screen, at most once per interval, and records which run is unfinished."""

    def __init__(self, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        self.unfinished: Path | None = None
        self._screen = screen
        self._clock = clock
        self._totals = RunTotals(0, 0.0)
        self._shown_s = 0.0

    def begin(self, title: str, first_round: int, num_rounds: int) -> None:
        self.unfinished = Path(title)
        self._shown_s = self._clock()
        self._totals = RunTotals(num_rounds, self._shown_s)
        if first_round > 1:  # a resumed run already has costs
            for record in Run(self.unfinished).rounds:
                self._totals.add(record, timed=False)
        self._show("")

    def round(self, record: Mapping[str, Any]) -> None:
        self._totals.add(record)
        now = self._clock()
        if now - self._shown_s >= self._screen.interval_s:
            self._shown_s = now
            self._show(self._totals.left(now))

    def notice(self, text: str) -> None:
        self._screen.notice(text)

    def end(self, summary: Mapping[str, Any]) -> None:
        self._show(self._totals.took(self._clock()))
        self._screen.close()
        self.unfinished = None

    def _show(self, time: str) -> None:
        totals = self._totals
        self._screen.show(RunPicture(str(self.unfinished), totals.round, totals.num_rounds, time, totals.line()))


def choose_screen(quiet: bool) -> Screen:
    """Return the screen for runs: a notebook, a terminal, or lines of text; none if `quiet`."""
    if quiet:
        return Nothing()
    if _in_notebook():
        return NotebookBar()
    console = Console(stderr=True)
    # checked on the stream itself: with FORCE_COLOR set, Rich treats a pipe as a terminal
    return Bar(console) if sys.stderr.isatty() and not console.is_dumb_terminal else RunLines()


def draw_run(picture: RunPicture) -> Group:
    """Return two lines that show a run at one moment."""
    bar = ProgressBar(total=picture.num_rounds, completed=picture.round, width=24)
    head = Table.grid(padding=(0, 1))
    head.add_row(Text(picture.title), bar, f"round {picture.round}/{picture.num_rounds}", picture.time)
    return Group(head, Text(f"  {picture.line}", style="dim", no_wrap=True, overflow="ellipsis"))


def _tell(text: str) -> None:
    print(printable(text, "\n\t"), file=sys.stderr, flush=True)


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")
