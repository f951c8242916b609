"""The names and addresses under which this machine can be reached."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress

LOOPBACK = ("localhost", "127.0.0.1", "::1")

_SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))  # reserved for documentation


def default_hosts() -> list[str]:
    """Return the host name, the loopback names and the addresses of this machine. Asks no other machine."""
    found = [socket.gethostname(), *LOOPBACK, *_outbound_addresses()]
    if sys.platform == "linux":
        found += _interface_addresses()
    return list(dict.fromkeys(found))


def _outbound_addresses() -> Iterator[str]:
    """Yield the addresses from which packets would leave; connecting a datagram socket sends none."""
    for family, target in _ELSEWHERE:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            address = ipaddress.ip_address(probe.getsockname()[0])
            if not address.is_link_local:
                yield str(address)


def _interface_addresses() -> Iterator[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no such address
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                yield socket.inet_ntoa(answer[20:24])
