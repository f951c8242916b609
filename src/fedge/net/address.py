"""Addresses of servers: `HOST:PORT`, with an IPv6 address in brackets."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import NamedTuple

from fedge.core.errors import ConfigError, NetworkError


class Address(NamedTuple):
    """A host name or IP address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_address(text: str, where: str, lowest_port: int = 1) -> Address:
    """Parse `HOST:PORT`; raise a ConfigError, which names the option `where`, if the text is malformed."""
    host, colon, port = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    well_formed = bool(host) and (":" in host) == bracketed and not set(host) & set("[]/@ ")
    if not (colon and well_formed and port.isdecimal() and lowest_port <= int(port) <= 65535):
        raise ConfigError(
            f"{where}: expected HOST:PORT, such as localhost:8443 or [::1]:8443, with a port from {lowest_port} to "
            f"65535, got {text!r}"
        )
    return Address(host, int(port))


def resolve_loopback(address: Address, where: str) -> Address:
    """Resolve the host to an IP address; raise a ConfigError unless it resolves to this machine only."""
    try:
        found = [str(entry[4][0]) for entry in socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:
        raise NetworkError(f"{where}: cannot resolve host {address.host} ({error})") from None
    others = [number for number in found if not ip_address(number).is_loopback]
    if others or not found:
        numbers = f" ({', '.join(dict.fromkeys(others))})" if others and others != [address.host] else ""
        raise ConfigError(
            f"{where}: --insecure works on this machine only, such as at 127.0.0.1 or localhost, not at {address.host}"
            f"{numbers}; for other machines create certificates with `fedge pki`"
        )
    return Address(found[0], address.port)
