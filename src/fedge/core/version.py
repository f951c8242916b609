"""Names of a client's private state on a network: after which exchange of which round it was written."""

from __future__ import annotations

from typing import NamedTuple


class Version(NamedTuple):
    """The private state that a client wrote in one attempt at an exchange. A run's first state has no version.

    An exchange that a restarted server repeats is another attempt, and writes another version.
    """

    round: int
    exchange: int
    attempt: int
