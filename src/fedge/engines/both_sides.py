"""Server and clients of a simulation, in one process."""

from __future__ import annotations

from typing import NamedTuple

from fedge.client.client_side import ClientSide
from fedge.core.server_side import ServerSide
from fedge.data.clients import Samples


class BothSides(NamedTuple):
    """The two sides of a simulated run. Only the algorithm's messages pass between them."""

    server: ServerSide
    clients: ClientSide
    test: Samples | None = None  # the server's own test set
