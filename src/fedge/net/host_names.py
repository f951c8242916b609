"""Host names and addresses of a server: validation, and those of this machine."""

from __future__ import annotations

import fcntl
import ipaddress
import re
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

from fedge.core.errors import ConfigError
from fedge.core.printable import printable

LOOPBACK = ("localhost", "127.0.0.1", "::1")

_LABEL = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(
    rf"(?=.{{1,253}}\Z)(?:{_LABEL}\.)*(?=.*[a-z]){_LABEL}"
)  # the last label is not a number, which would be a mistyped address
_SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))  # reserved for documentation


def parse_ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse an IP address; None if the text is not one, or has a zone that only this machine knows (`%eth0`)."""
    try:
        return None if "%" in host else ipaddress.ip_address(host)
    except ValueError:
        return None


def check_hosts(hosts: Iterable[str]) -> list[str]:
    """Return names and addresses, normalised and without repeats; raise a ConfigError for an invalid one."""
    return list(dict.fromkeys(map(_checked, hosts)))


def default_hosts() -> list[str]:
    """Return this machine's host name, loopback names and addresses, without contacting other machines."""
    name = socket.gethostname().lower()
    names = [name] if _NAME.fullmatch(name) else []  # the system allows any text
    addresses = [*_outbound_addresses(), *(_interface_addresses() if sys.platform == "linux" else ())]
    return check_hosts([*names, *LOOPBACK, *addresses])


def _checked(host: str) -> str:
    if (address := parse_ip(host)) is not None:
        return str(address)
    if _NAME.fullmatch(host.lower()):
        return host.lower()
    raise ConfigError(
        "--host: expected a host name in ASCII or an IP address, without port and brackets, "
        f"got {printable(host[:300])!r}"
    )


def _outbound_addresses() -> Iterator[str]:
    """Yield the addresses of outgoing packets; connecting a datagram socket sends none."""
    for family, target in _ELSEWHERE:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            address = parse_ip(probe.getsockname()[0])
            if address is not None and not address.is_link_local:
                yield str(address)


def _interface_addresses() -> Iterator[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # the interface has no IPv4 address
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                yield socket.inet_ntoa(answer[20:24])
