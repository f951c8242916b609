"""Starting and stopping `fedge view`: unavailable addresses, missing packages, signals."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from e2e.command import Fedge, wait_until
from fedge.core.errors import NetworkError
from fedge.view import serve
from fedge.view.guard import AccessRules
from view.missing_modules import hide
from view.test_exports import key_of, offline
from view.view_server import ViewServer

StartView = Callable[..., ViewServer]
WRONG_HOST = "expected a name or address of this machine; choose 127.0.0.1 or 0.0.0.0"


@pytest.fixture
def own_host() -> str:
    """A loopback address that no other program uses, so that all its ports are free."""
    number = os.getpid()
    return f"127.{1 + number // 65_536 % 254}.{number // 256 % 256}.{1 + number % 256 % 254}"


@pytest.fixture
def occupy() -> Iterator[Callable[[str, int], int]]:
    """occupy(host, port): take a port; 0 for any. Returns its number."""
    with ExitStack() as taken:

        def take(host: str, port: int) -> int:
            made = taken.enter_context(socket.create_server((host, port)))
            number: int = made.getsockname()[1]
            return number

        yield take


def fails(fedge: Fedge, code: int, *args: object, **how: Any) -> str:
    """Return what `fedge view` prints when it cannot start."""
    ended = fedge("view", *args, **how)
    assert (ended.code, ended.out) == (code, ""), ended.err
    assert "Traceback" not in ended.err
    return ended.err


def test_a_given_port_in_use(fedge: Fedge, runs: Path, own_host: str, occupy: Callable[..., int]) -> None:
    port = occupy(own_host, 0)
    assert fails(fedge, 9, runs, "--host", own_host, "--port", port) == (
        f"error: port {port} on {own_host} is in use; choose another with --port, or drop --port to take a free one\n"
    )


def test_the_first_free_default_port(
    start_view: StartView, runs: Path, own_host: str, occupy: Callable[..., int]
) -> None:
    for port in (8765, 8766, 8768):
        occupy(own_host, port)
    view = start_view(runs, "--host", own_host)
    assert view.port == 8767
    assert view.get("/api/runs").status == 200


def test_all_default_ports_in_use(fedge: Fedge, runs: Path, own_host: str, occupy: Callable[..., int]) -> None:
    for port in range(8765, 8785):
        occupy(own_host, port)
    assert fails(fedge, 9, runs, "--host", own_host) == (
        f"error: no free port from 8765 to 8784 on {own_host}; choose one with --port\n"
    )


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "[::1]", "", "a" * 64, "a..b"])
def test_an_address_that_this_machine_does_not_have(host: str) -> None:
    with pytest.raises(NetworkError) as caught:
        serve.listen(host, 0)
    assert str(caught.value) == f"--host {host}: {WRONG_HOST}"


def test_a_wrong_host_on_the_command_line(fedge: Fedge, runs: Path) -> None:
    assert fails(fedge, 9, runs, "--host", "192.0.2.1") == f"error: --host 192.0.2.1: {WRONG_HOST}\n"


def test_an_unknown_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    for port in (8765, None):
        with pytest.raises(NetworkError, match=f"^--host nowhere: {WRONG_HOST}$"):
            serve.listen("nowhere", port)


def test_a_privileged_port(fedge: Fedge, runs: Path, own_host: str) -> None:
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 80:
        pytest.skip("every user of this machine may have every port")
    assert fails(fedge, 9, runs, "--host", own_host, "--port", 80, powerless=True) == (
        "error: port 80 is not permitted: ports below 1024 need privileges; choose a larger one with --port\n"
    )


def test_another_error_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    def bind(*_: object) -> None:
        raise OSError(errno.ENOBUFS, "No buffer space available")

    monkeypatch.setattr(serve, "_bind", bind)
    with pytest.raises(NetworkError) as caught:
        serve.listen("127.0.0.1", None)
    assert str(caught.value) == (
        "cannot listen on 127.0.0.1:8765: No buffer space available; choose others with --host and --port"
    )


@pytest.mark.parametrize(
    "path", ["fedge", "//evil.example", "/a//b", "/a b", "/a?b", "/a#b", "/%2e", '/"', "/a;b", "/<"]
)
def test_a_wrong_root_path(fedge: Fedge, runs: Path, path: str) -> None:
    assert fails(fedge, 2, runs, "--root-path", path) == (
        f"error: --root-path: expected a path such as /fedge, got {path!r}\n"
    )


@pytest.mark.parametrize(("path", "meant"), [("", ""), ("/", ""), ("/fedge/", "/fedge"), ("/lab/fedge", "/lab/fedge")])
def test_a_root_path(path: str, meant: str) -> None:
    assert serve.check_root_path(path) == meant


def test_a_missing_folder(fedge: Fedge, runs: Path) -> None:
    for path in (runs / "nowhere", runs / "begun/seed-1/config.json"):
        assert fails(fedge, 6, path) == (
            f"error: no folder at {path}: expected one with runs in it; start a run with `fedge run FILE`\n"
        )


def hidden(*names: str) -> dict[str, Any]:
    """Options of a process in which modules are not installed."""
    return {"hooks": [(hide.__module__, hide.__name__, {"names": names})]}


@pytest.mark.parametrize("name", ["starlette", "uvicorn", "jinja2"])
def test_a_missing_extra(fedge: Fedge, runs: Path, name: str) -> None:
    assert fails(fedge, 1, runs, **hidden(name)) == (
        f"error: the results page needs {name}, which is not installed; pip install 'fedge[page]'\n"
    )


NO_CHARTS = "charts need vl_convert, which is not installed; pip install 'fedge[view]'"


def test_only_the_library_of_charts_is_missing(start_view: StartView, runs: Path) -> None:
    """Tables need no charts; each chart states what to install."""
    view = start_view(runs, **hidden("vl_convert"))
    assert "rate-0.1/seed-1" in view.get("/").read().decode()
    for path in ("/static/vega.js", "/export/chart/curves.svg?q=rate"):
        answer = view.get(path)
        assert (answer.status, answer.read().decode()) == (409, f'{{"error":"{NO_CHARTS}"}}')
    assert view.get("/api/chart/curves?q=rate").status == 200
    assert view.process.err == ""


def test_an_offline_page_without_the_library_of_charts(
    runs: Path, open_page: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    page = open_page(runs)
    text = offline(page, f"/export/run/{key_of(page, 'rate-0.1/seed-1')}.html")
    assert text.count(NO_CHARTS.replace("'", "&#39;")) == 2
    assert "<svg" not in text


def test_open_starts_a_browser_at_the_printed_address(start_view: StartView, runs: Path, tmp_path: Path) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o700)
    view = start_view(runs, "--open", environment={"BROWSER": f"{browser} %s"})
    wait_until(opened.exists)
    assert opened.read_text().strip() == view.printed


def test_no_browser_is_started_without_open(start_view: StartView, runs: Path, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    view = start_view(runs, environment={"BROWSER": f"touch {opened} %s"})
    assert view.get("/api/runs").status == 200  # which comes after the browser
    assert not opened.exists()


@pytest.mark.parametrize(("number", "code", "word"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")])
@pytest.mark.parametrize("streaming", [False, True], ids=["idle", "with an open stream"])
def test_signals_end_the_server(
    start_view: StartView, runs: Path, number: str, code: int, word: str, streaming: bool
) -> None:
    view = start_view(runs)
    assert view.get("/api/runs").status == 200
    with socket.create_connection((view.host, view.port)) as stranger:  # the terminal does not show what it sends
        stranger.sendall(b"\x16\x03\x01\r\n\r\n")
        assert stranger.recv(100).startswith(b"HTTP/1.1 400 ")
    if streaming:
        stream = view.get("/api/live")
        assert stream.readline().startswith(b"id: ")
    view.process.send(signal.Signals[number])
    ended = view.process.wait()
    assert (ended.code, ended.err) == (code, f"{word}; to open the page again: fedge view {runs}\n")
    if streaming:
        stream.read()  # to its regular end
    with pytest.raises(ConnectionRefusedError):
        view.get("/")


@pytest.mark.full
def test_ctrl_c_twice(start_view: StartView, runs: Path) -> None:
    """Twice before the server has ended: it hurries, and prints the same."""
    view = start_view(runs)
    assert view.get("/api/runs").status == 200
    stream = view.get("/api/live")
    stream.readline()
    view.process.send(signal.SIGINT)
    time.sleep(0.05)
    view.process.send(signal.SIGINT)
    ended = view.process.wait()
    assert (ended.code, ended.err) == (130, f"interrupted; to open the page again: fedge view {runs}\n")


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "[::1]"),
        ("::1", "[::1]"),
        ("lab.example", "lab.example"),
    ],
)
def test_the_printed_address(host: str, shown: str) -> None:
    rules = AccessRules(root_path="/fedge", token="secret")
    assert serve.address(host, 8765, rules) == f"http://{shown}:8765/fedge/?token=secret"


@pytest.mark.parametrize(
    ("host", "own"), [("127.0.0.1", False), ("localhost", False), ("::1", False), ("0.0.0.0", True), ("lab", True)]
)
def test_host_names_that_the_page_accepts(monkeypatch: pytest.MonkeyPatch, host: str, own: bool) -> None:
    """Beyond loopback, the machine's own names are accepted too; on loopback, DNS may assign them to other machines."""
    monkeypatch.setattr(socket, "gethostname", lambda: "Node7")
    monkeypatch.setattr(socket, "getfqdn", lambda: "node7.example")
    rules = serve.rules_of(host, 8765, ["Proxy.example"], "/fedge")
    assert rules.hosts == {host, "proxy.example", *(("node7", "node7.example") if own else ())}
    assert (rules.root_path, rules.cookie) == ("/fedge", "fedge-view-8765")


def test_tokens_differ() -> None:
    assert len({serve.rules_of("127.0.0.1", 1, [], "").token for _ in range(20)}) == 20
