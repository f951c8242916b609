"""Server and clients in one process, as a simulation has them."""

from __future__ import annotations

from typing import NamedTuple

from fedge.client.client_side import ClientSide
from fedge.core.server_side import ServerSide
from fedge.data.clients import Samples


class BothSides(NamedTuple):
    """What a simulated engine is given. Only messages of the algorithm pass from one side to the other."""

    server: ServerSide
    clients: ClientSide
    test: Samples | None = None  # the server's own test set
