"""What is seen on stderr of a run while it trains: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedge.cli.output import Clean, tell
from fedge.cli.tally import Tally
from fedge.core.printable import printable
from fedge.runs import Run


class Screen(Protocol):
    """Where a watched run is shown."""

    interval_s: float  # the least time between two pictures of a run

    def show(self, picture: RunPicture) -> None: ...
    def notice(self, text: str) -> None: ...
    def close(self) -> None:
        """The last picture shown stays; the next one is of another run."""


class RunPicture(NamedTuple):
    """A run at one moment."""

    title: str
    round: int
    num_rounds: int
    time: str
    line: str


class Bar:
    """Two lines for each run, drawn over and over."""

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
            # Drawn when told to: a thread of its own would be in the way of engines that fork.
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
        tell(text)

    def close(self) -> None:
        pass


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
    """Passes on what a run tells, as often as the screen wants to hear it; knows which run is under way."""

    def __init__(self, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        self.unfinished: Path | None = None
        self._screen = screen
        self._clock = clock
        self._tally = Tally(0, 0.0)
        self._shown_s = 0.0

    def begin(self, title: str, first_round: int, num_rounds: int) -> None:
        self.unfinished = Path(title)
        self._shown_s = self._clock()
        self._tally = Tally(num_rounds, self._shown_s)
        if first_round > 1:  # a resumed run has costs already
            for record in Run(self.unfinished).rounds:
                self._tally.add(record, timed=False)
        self._show("")

    def round(self, record: Mapping[str, Any]) -> None:
        self._tally.add(record)
        now = self._clock()
        if now - self._shown_s >= self._screen.interval_s:
            self._shown_s = now
            self._show(self._tally.left(now))

    def notice(self, text: str) -> None:
        self._screen.notice(text)

    def end(self, summary: Mapping[str, Any]) -> None:
        self._show(self._tally.took(self._clock()))
        self._screen.close()
        self.unfinished = None

    def _show(self, time: str) -> None:
        tally = self._tally
        self._screen.show(RunPicture(str(self.unfinished), tally.round, tally.num_rounds, time, tally.line()))


@contextmanager
def watching(quiet: bool) -> Iterator[Watch]:
    """A listener for runs; one that is interrupted is said how to go on with."""
    screen = _screen(quiet)
    watch = Watch(screen)
    try:
        yield watch
    except KeyboardInterrupt:
        screen.close()
        how = f": fedge resume {shlex.quote(str(_experiment(watch.unfinished)))}" if watch.unfinished else ""
        tell(f"interrupted{how}")
        raise
    finally:
        screen.close()


def _screen(quiet: bool) -> Screen:
    if quiet:
        return Nothing()
    console = Console(stderr=True)
    # asked of the stream itself, as Rich takes a pipe for a terminal where FORCE_COLOR is set
    return Bar(console) if sys.stderr.isatty() and not console.is_dumb_terminal else RunLines()


def draw_run(picture: RunPicture) -> Group:
    """Return a run at one moment in two lines."""
    bar = ProgressBar(total=picture.num_rounds, completed=picture.round, width=24)
    head = Table.grid(padding=(0, 1))
    head.add_row(Text(picture.title), bar, f"round {picture.round}/{picture.num_rounds}", picture.time)
    return Group(head, Text(f"  {picture.line}", style="dim", no_wrap=True, overflow="ellipsis"))


def _experiment(run: Path) -> Path:
    """What to resume: of a repeat the folder of all, so that the seeds after it are run too."""
    return run.parent if (run.parent / "config.json").is_file() else run
