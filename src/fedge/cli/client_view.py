"""What the owner of a client sees: one line that changes on a terminal, a line for each task elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from fedge.cli.output import say, tell
from fedge.core.printable import printable
from fedge.report.clean_text import Clean
from fedge.report.run_totals import duration

if TYPE_CHECKING:
    from fedge.net.policy import OfferFacts
    from fedge.net.views import ClientView, Verdict

_PER_SECOND = 2  # pictures


class ClientLines:
    """Plain text for files and pipes."""

    def __init__(self, server: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._server, self._clock = server, clock
        self._lock = RLock()
        self._who = ""
        self._task = ""
        self._began_s = clock()
        self._activity = "connecting"
        self._ended: Counter[str] = Counter()
        self._reason = ""  # the last one told

    def connected(self, run: str, number: int) -> None:
        with self._lock:
            who = f"client {number} of run {run}"
            self.notice(f"{self._server}: {'connected again' if who == self._who else 'joined'} as {who}")
            self._who = who
            if not self._task:
                self._activity = "idle"

    def task(self, offer: OfferFacts) -> None:
        with self._lock:
            exchange = f", exchange {offer.exchange + 1}" if offer.exchange else ""
            self._task = f"round {offer.round}{exchange}" + (", evaluation" if offer.kind == "question" else "")
            self._began_s = self._clock()

    def activity(self, text: str) -> None:
        with self._lock:
            self._activity = text

    def settled(self, verdict: Verdict, reason: str = "") -> None:
        with self._lock:
            self._ended[verdict] += 1
            news = reason if reason != self._reason else ""  # the same one at every round is told once
            self._reason = reason
            told = f"{self._task}: {verdict} after {self._passed()}" + (f" ({news})" if news else "")
            self.ended(told, matters=bool(news) and verdict in ("failed", "rejected"))
            self._task, self._activity = "", "idle"

    def ended(self, text: str, matters: bool) -> None:
        """Say how a task has ended; what matters needs the owner's attention."""
        self.notice(text)

    def notice(self, text: str) -> None:
        tell(text)

    def done(self, model: Path | None) -> None:
        with self._lock:
            self._task, self._activity = "", "done"
            self.notice(f"{self._server}: the run is complete")
            if model is not None:
                say(f"model: {model}")

    def close(self) -> None:
        pass

    def line(self) -> str:
        """`localhost:8443: client 3 of run 5f...: round 4, working, 0:12; 3 received, 1 declined`"""
        # Without the lock: whoever draws has Rich's, which others wait for while they hold this one.
        now = ", ".join(filter(None, [self._task, self._activity, self._passed() if self._task else ""]))
        ended = ", ".join(f"{number} {verdict}" for verdict, number in dict(self._ended).items())
        return "; ".join(filter(None, [": ".join(filter(None, [self._server, self._who, now])), ended]))

    def _passed(self) -> str:
        return duration(self._clock() - self._began_s)


class ClientPicture(ClientLines):
    """One line on a terminal that is drawn over and over; what matters stays above it."""

    def __init__(self, server: str, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(server, clock)
        self._console = console
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=_PER_SECOND, transient=True)
        self._live.start()

    def ended(self, text: str, matters: bool) -> None:
        if matters:
            self.notice(text)  # the others are counted in the line

    def notice(self, text: str) -> None:
        self._console.print(printable(text, "\n\t"), markup=False, highlight=False, soft_wrap=True)

    def done(self, model: Path | None) -> None:
        self.close()
        super().done(model)

    def close(self) -> None:
        self._live.stop()

    def _draw(self) -> Clean:
        return Clean(Text(self.line(), no_wrap=True, overflow="ellipsis"))


class ClientSilence(ClientLines):
    """Says nothing."""

    def notice(self, text: str) -> None:
        pass

    def done(self, model: Path | None) -> None:
        pass


@contextmanager
def watching_client(server: str, quiet: bool) -> Iterator[ClientView]:
    """A view of a client."""
    console = Console(stderr=True)
    view = ClientLines(server)
    if quiet:
        view = ClientSilence(server)
    elif sys.stderr.isatty() and not console.is_dumb_terminal:
        view = ClientPicture(server, console)
    try:
        yield view
    finally:
        view.close()
