"""Versions of a client's private state on a network: the round and exchange after which it was written."""

from __future__ import annotations

from typing import NamedTuple


class Version(NamedTuple):
    """Identifies the private state that a client wrote in one attempt at an exchange. The initial state has no version.

    An exchange repeated by a restarted server is a new attempt and writes a new version.
    """

    round: int
    exchange: int
    attempt: int
