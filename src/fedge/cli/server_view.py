"""What is seen of a server while it runs: a picture on a terminal, a line for each round and event elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console, Group
from rich.text import Text

from fedge.core.fields import describe
from fedge.report.run_display import Bar, Nothing, RunLines, RunPicture, Screen, Watch, draw_run
from fedge.report.run_totals import duration

if TYPE_CHECKING:
    from fedge.net.status import ServerStatus
    from fedge.net.views import Value

_TOLD = {
    "join": "joined",
    "leave": "left",
    "drop": "was given up",
    "reject": "sent an upload that was rejected",
    "fail": "could not do its task",
    "refuse": "was refused",
}
"""Events that a person is told of as they happen; `events.jsonl` has all."""


class ServerScreen(Screen, Protocol):
    """Where a server is shown."""

    def moment(self, status: ServerStatus) -> None: ...


class ServerPicture(Bar):
    """The rounds, and below them what happens now."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._run: RunPicture | None = None
        self._now = ""

    def show(self, picture: RunPicture) -> None:
        self._run = picture
        self._draw()

    def moment(self, status: ServerStatus) -> None:
        self._now = describe_status(status)
        self._draw()

    def close(self) -> None:
        if self._live is not None and self._now:
            self._now = ""  # the moment has passed
            self._draw()
        super().close()
        self._run = None  # what a server tells after the end is drawn below

    def _draw(self) -> None:
        now = [Text(f"  {self._now}", style="dim", no_wrap=True, overflow="ellipsis")] if self._now else []
        self._update(Group(*([draw_run(self._run)] if self._run else []), *now))


class ServerLines(RunLines):
    """A line for each round, and one whenever there is a new reason to wait."""

    interval_s = 0.0

    def __init__(self) -> None:
        self._waiting_for = ""

    def moment(self, status: ServerStatus) -> None:
        if status.waiting_for not in ("", self._waiting_for):
            self.notice(describe_status(status))
        self._waiting_for = status.waiting_for


class ServerSilence(Nothing):
    """Shows nothing."""

    def moment(self, status: ServerStatus) -> None:
        pass


class ServerWatch(Watch):
    """Passes on what a server tells, from whichever thread."""

    def __init__(self, screen: ServerScreen, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(screen, clock)
        self._server_screen = screen
        self._lock = RLock()
        self._failures: dict[Value, Value] = {}  # the last one of each client: the same at every round is told once

    def begin(self, title: str, first_round: int, num_rounds: int) -> None:
        with self._lock:
            super().begin(title, first_round, num_rounds)

    def round(self, record: Mapping[str, Any]) -> None:
        with self._lock:
            super().round(record)

    def notice(self, text: str) -> None:
        with self._lock:
            super().notice(text)

    def end(self, summary: Mapping[str, Any]) -> None:
        with self._lock:
            super().end(summary)

    def status(self, status: ServerStatus) -> None:
        with self._lock:
            self._server_screen.moment(status)

    def event(self, event: str, **fields: Value) -> None:
        if event not in _TOLD:
            return
        if event == "fail":
            who, why = fields.get("client"), fields.get("reason")
            if self._failures.get(who) == why:
                return
            self._failures[who] = why
        self.notice(_describe_event(event, fields))


@contextmanager
def watching_server(quiet: bool) -> Iterator[ServerWatch]:
    """A listener for one server's run."""
    console = Console(stderr=True)
    screen: ServerScreen
    if quiet:
        screen = ServerSilence()
    elif sys.stderr.isatty() and not console.is_dumb_terminal:
        screen = ServerPicture(console)
    else:
        screen = ServerLines()
    try:
        yield ServerWatch(screen)
    finally:
        screen.close()


def describe_status(status: ServerStatus) -> str:
    """`round 3, exchange 2: open, 2 of 5 received, 0:34 left; 2 working, 1 uploading; 12.5 MB down, 3 MB up`"""
    exchange = f", exchange {status.exchange + 1}" if status.exchange else ""
    what = [status.waiting_for or status.state]
    if status.asked:
        what.append(f"{status.received} of {status.asked} received")
    if status.deadline_s is not None:
        what.append(f"{duration(max(0.0, status.deadline_s))} left")
    clients = ", ".join(f"{number} {state}" for state, number in status.clients.items() if number)
    sent = [("down", status.bytes_down), ("up", status.bytes_up)]
    traffic = ", ".join(f"{describe('bytes_up').write(number)} {way}" for way, number in sent if number)
    return "; ".join(filter(None, [f"round {status.round}{exchange}: {', '.join(what)}", clients, traffic]))


def _describe_event(event: str, fields: Mapping[str, Value]) -> str:
    """`client 3 (clinic) left in round 4: goodbye`"""
    number, name = fields.get("client"), fields.get("name")
    who = "a client" if number is None else f"client {number}"
    if name is not None:
        who += f" ({name})"
    when = f" in round {fields['round']}" if fields.get("round") else ""
    why = f": {fields['reason']}" if fields.get("reason") else ""
    return f"{who} {_TOLD[event]}{when}{why}"
