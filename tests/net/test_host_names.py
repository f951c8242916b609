"""Names and addresses of a server."""

from __future__ import annotations

import socket

import pytest

from fedge.core.errors import ConfigError
from fedge.net.host_names import check_hosts, default_hosts


def test_hosts_are_normalised_without_repeats() -> None:
    given = ["FL.example.org", "fl.example.org", "10.0.0.1", "::1", "0:0:0:0:0:0:0:1", "my_host", "a-1"]
    assert check_hosts(given) == ["fl.example.org", "10.0.0.1", "::1", "my_host", "a-1"]


WRONG = ["", "a:8443", "[::1]", "https://a", "a b", "*.a", "-a", "a-", "a..b", ".a", "a.", "bücher.de", "10.0.0"]
WRONG += ["10.0.0.256", "fe80::1%eth0", "x" * 64, ".".join(["x" * 60] * 5), "a\n", "a\x00"]


@pytest.mark.parametrize("host", WRONG)
def test_invalid_hosts(host: str) -> None:
    with pytest.raises(ConfigError, match="--host: expected a host name"):
        check_hosts([host])


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "Lab7")
    found = default_hosts()
    assert found[:4] == ["lab7", "localhost", "127.0.0.1", "::1"]
    assert check_hosts(found) == found


def test_invalid_host_name_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "Ann's laptop")
    assert default_hosts()[:3] == ["localhost", "127.0.0.1", "::1"]
