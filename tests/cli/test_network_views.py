"""Progress displays of servers and clients."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedge.cli.client_view import ClientLines, ClientPicture, watching_client
from fedge.cli.server_view import ServerLines, ServerPicture, ServerWatch, describe_status, watching_server
from fedge.net.policy import OfferFacts
from fedge.net.status import ServerStatus

OFFER = OfferFacts("work", 4, 0, 1000, 60.0)


class FakeClock:
    """A clock that tests advance."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def moment(**changes: Any) -> ServerStatus:
    return ServerStatus(**({"run": "5f", "state": "open", "round": 3} | changes))


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100, height=20)


def drawn(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "round 3: open"),
        ({"waiting_for": "waiting for 2 more"}, "round 3: waiting for 2 more"),
        ({"exchange": 1, "asked": 5, "received": 2}, "round 3, exchange 2: open, 2 of 5 received"),
        ({"deadline_s": 83.0}, "round 3: open, 1:23 left"),
        ({"deadline_s": -1.0}, "round 3: open, 0:00 left"),
        ({"clients": {"working": 2, "idle": 0, "uploading": 1}}, "round 3: open; 2 working, 1 uploading"),
        ({"bytes_down": 12_500_000, "bytes_up": 3_000_000}, "round 3: open; 12.5 MB down, 3 MB up"),
    ],
)
def test_status_line_of_a_server(changes: dict[str, Any], line: str) -> None:
    assert describe_status(moment(**changes)) == line


@pytest.mark.parametrize(
    ("event", "fields", "line"),
    [
        ("join", {"client": 3, "name": "clinic"}, "client 3 (clinic) joined\n"),
        ("leave", {"client": 3, "name": "clinic", "reason": "bye"}, "client 3 (clinic) left: bye\n"),
        (
            "reject",
            {"client": 3, "round": 4, "reason": "not finite"},
            "was rejected in round 4: not finite\n",
        ),
        ("refuse", {"name": "who", "reason": "revoked"}, "a client (who) was refused: revoked\n"),
        ("drop", {"client": 0, "name": None, "round": 1}, "client 0 was dropped in round 1\n"),
        ("join", {"client": 3, "name": "\x1b[31mred"}, "client 3 (\\u001b[31mred) joined\n"),
        ("fetch", {"client": 3}, ""),
        ("offer", {"client": 3}, ""),
    ],
)
def test_events_of_a_server(capsys: pytest.CaptureFixture[str], event: str, fields: Any, line: str) -> None:
    ServerWatch(ServerLines()).event(event, **fields)
    said = capsys.readouterr().err
    assert said.endswith(line)
    assert bool(said) == bool(line)


def test_repeated_failure_of_a_client_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    watch = ServerWatch(ServerLines())
    for client, reason in ((3, "state missing"), (3, "state missing"), (4, "state missing"), (3, "disk full")):
        watch.event("fail", client=client, round=2, reason=reason)
    assert capsys.readouterr().err.splitlines() == [
        "client 3 failed at its task in round 2: state missing",
        "client 4 failed at its task in round 2: state missing",
        "client 3 failed at its task in round 2: disk full",
    ]


def test_reason_to_wait_is_printed_once_until_it_changes(capsys: pytest.CaptureFixture[str]) -> None:
    watch = ServerWatch(ServerLines())
    for reason in ("", "waiting for 3 more", "waiting for 3 more", "waiting for 2 more", "", "waiting for 2 more"):
        watch.status(moment(waiting_for=reason))
    waits = [f"round 3: waiting for {number} more" for number in (3, 2, 2)]
    assert capsys.readouterr().err.splitlines() == waits


def test_fast_rounds_each_have_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    watch = ServerWatch(ServerLines(), FakeClock())
    watch.begin("runs/first", 1, 3)
    for number in (1, 2, 3):
        watch.round({"round": number})
    watch.end({})
    said = [line.partition(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert said == [f"runs/first: round {number}/3" for number in (0, 1, 2, 3, 3)]


def test_terminal_shows_rounds_and_current_status() -> None:
    console = terminal()
    watch = ServerWatch(ServerPicture(console))
    watch.status(moment(waiting_for="waiting for 3 more"))  # before the first round
    assert "waiting for 3 more" in drawn(console)
    watch.begin("runs/first", 1, 9)
    watch.status(moment(clients={"working": 2}))
    watch.round({"round": 1, "accuracy": 0.5})
    watch.event("join", client=1, name="clinic")
    watch.end({})
    before = len(drawn(console))
    watch.status(moment(state="done"))  # while it waits for clients to learn that the run ended
    shown = drawn(console)
    assert "round 1/9" in shown
    assert "2 working" in shown
    assert "client 1 (clinic) joined" in shown
    assert "round 3: done" in shown[before:]
    assert "runs/first" not in shown[before:]


def test_hostile_text_cannot_control_the_terminal() -> None:
    console = terminal()
    watch = ServerWatch(ServerPicture(console))
    watch.status(moment(waiting_for="\x1b]0;gotcha\x07", clients={"\x1b[2J": 3}))
    view = ClientPicture("localhost:8443", console)
    view.connected("\x1b]0;gotcha\x07", 3)
    view.activity("\x1b[2J")
    view.close()
    assert "\x1b]0" not in drawn(console)
    assert "\x1b[2J" not in drawn(console)


def test_the_line_of_a_client() -> None:
    clock = FakeClock()
    view = ClientLines("a.org:8443", clock)
    assert view.line() == "a.org:8443: connecting"
    view.connected("5f", 3)
    assert view.line() == "a.org:8443: client 3 of run 5f: idle"
    view.task(OFFER)
    view.activity("working")
    clock.now += 12
    assert view.line() == "a.org:8443: client 3 of run 5f: round 4, working, 0:12"
    view.settled("received")
    view.task(OFFER)
    view.settled("received")
    view.task(OFFER)
    view.settled("declined", "on battery")
    assert view.line() == "a.org:8443: client 3 of run 5f: idle; 2 received, 1 declined"


def test_client_on_a_terminal_prints_important_outcomes_above_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    console = terminal()
    view = ClientPicture("a.org:8443", console)
    view.connected("5f", 3)
    view.task(OFFER)
    view.settled("received")
    view.notice("the certificate ends in 3 days")
    view.done(Path("own/model.safetensors"))
    view.close()
    shown = drawn(console)
    assert "joined as client 3 of run 5f" in shown
    assert "the certificate ends in 3 days" in shown
    assert "round 4: received" not in shown  # the line counts it
    assert capsys.readouterr().out == "model: own/model.safetensors\n"


def test_a_client_that_reconnects_while_it_works() -> None:
    view = ClientLines("a.org:8443", FakeClock())
    view.connected("5f", 3)
    view.task(OFFER)
    view.activity("working")
    view.connected("5f", 3)
    assert view.line() == "a.org:8443: client 3 of run 5f: round 4, working, 0:00"


def test_client_on_a_terminal_prints_a_repeated_failure_once() -> None:
    console = terminal()
    view = ClientPicture("a.org:8443", console)
    for verdict, reason in (("failed", "no state"), ("failed", "no state"), ("declined", "on battery")):
        view.task(OFFER)
        view.settled(verdict, reason)
    view.close()
    shown = drawn(console)
    assert shown.count("failed after 0:00 (no state)") == 1
    assert "on battery" not in shown


def test_status_is_removed_from_the_terminal_at_the_end() -> None:
    console = terminal()
    screen = ServerPicture(console)
    watch = ServerWatch(screen)
    watch.begin("runs/first", 1, 3)
    watch.status(moment(waiting_for="waiting for 3 more"))
    watch.end({})
    assert drawn(console).rstrip().splitlines()[-1].count("waits") == 0


@pytest.mark.parametrize("side", ["server", "client"])
def test_views_are_thread_safe(side: str) -> None:
    """Rich draws in its own thread with its own lock: the two locks must not deadlock."""
    console = terminal()
    tells: list[Callable[[], None]]
    if side == "client":
        view = ClientPicture("a.org:8443", console)
        view._live.refresh_per_second = 1000
        tells = [lambda: view.settled("received"), lambda: view.notice("x"), lambda: view.connected("5f", 3)]
        tells += [lambda: view._live.refresh()]
        close = view.close
    else:
        screen = ServerPicture(console)
        watch = ServerWatch(screen)
        watch.begin("runs/first", 1, 10**6)
        tells = [lambda: watch.status(moment()), lambda: watch.notice("x"), lambda: watch.round({"round": 1})]
        close = screen.close
    threads = [threading.Thread(target=lambda tell=tell: [tell() for _ in range(50)], daemon=True) for tell in tells]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    close()


@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_which_view_is_chosen(monkeypatch: pytest.MonkeyPatch, quiet: bool, is_terminal: bool) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    with watching_server(quiet) as watch:
        watch.notice("told")
    with watching_client("a.org:8443", quiet) as view:
        view.notice("told")
        assert isinstance(view, ClientPicture) == (is_terminal and not quiet)
    assert stream.getvalue().count("told") == (0 if quiet else 2)
