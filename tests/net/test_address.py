"""Addresses, and that --insecure is limited to this machine."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from fedge.core.errors import ConfigError, NetworkError
from fedge.net.address import Address, read_address, resolve_loopback


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost:8443", "localhost", 8443),
        ("127.0.0.1:1", "127.0.0.1", 1),
        ("[::1]:65535", "::1", 65535),
        ("[fe80::1%eth0]:80", "fe80::1%eth0", 80),
        (" server.example.org:443 ", "server.example.org", 443),
    ],
)
def test_address_is_parsed_and_formatted(text: str, host: str, port: int) -> None:
    assert read_address(text, "--server") == (host, port)
    assert str(Address(host, port)) == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":8443",
        "8443",
        "localhost",
        "localhost:",
        "localhost:0",
        "localhost:65536",
        "localhost:-1",
        "localhost:http",
        "::1:8443",
        "[::1]",
        "[localhost]:8443",
        "[]:8443",
        "https://localhost:8443",
        "user@localhost:8443",
        "two words:8443",
    ],
)
def test_malformed_address_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--server: expected HOST:PORT"):
        read_address(text, "--server")


def test_server_may_use_port_0() -> None:
    assert read_address("localhost:0", "net.listen", lowest_port=0) == ("localhost", 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1"])
def test_addresses_of_this_machine_are_loopback(host: str) -> None:
    assert resolve_loopback(Address(host, 8443), "--server") == (host, 8443)


def test_host_name_is_replaced_by_the_checked_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that resolves to another address later must not lead elsewhere."""
    resolving(monkeypatch, "::1", "127.0.0.1")
    assert resolve_loopback(Address("here", 8443), "--server") == ("::1", 8443)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "8.8.8.8"])
def test_other_addresses_are_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=rf"^net\.listen: --insecure works on this machine only.*not at {host};"):
        resolve_loopback(Address(host, 8443), "net.listen")


def test_name_that_also_resolves_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "127.0.0.1", "192.0.2.1", "192.0.2.1")
    with pytest.raises(ConfigError, match=r"not at here \(192\.0\.2\.1\);"):
        resolve_loopback(Address("here", 8443), "--server")


def test_an_unknown_host_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(NetworkError, match="--server: cannot resolve host nowhere"):
        resolve_loopback(Address("nowhere", 8443), "--server")


def test_invalid_host_name_is_an_error() -> None:
    with pytest.raises(NetworkError, match="cannot resolve host"):
        resolve_loopback(Address("a" * 70 + ".org", 8443), "--server")


def resolving(monkeypatch: pytest.MonkeyPatch, *numbers: str) -> None:
    """Let every name resolve to these addresses."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (number, 8443)) for number in numbers]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
