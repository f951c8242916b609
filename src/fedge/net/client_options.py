"""The options of a client."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fedge.net.allow import AllowedParts
from fedge.net.policy import Policy


class ClientOptions(NamedTuple):
    """The options of `fedge client`, read and checked."""

    server: str  # HOST:PORT
    credentials_dir: Path | None  # with the client's key and certificates; None: --insecure, on this machine
    name: str | None  # only without a certificate, which otherwise has the name
    data: str  # the source of the client's samples
    state: Path
    policy: Policy
    allow: AllowedParts
    threads: int | None = None  # None: all cores
    proxy: str | None = None  # http://HOST:PORT
    reset_state: bool = False
