"""Settings of the networked runtime: when a round starts and closes, and limits per client."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from fedge.core.schema import Options

Seconds = Annotated[float, Meta(gt=0, le=1e7)]
Bytes = Annotated[int, Meta(ge=1 << 16, le=1 << 40)]


class NetOptions(Options, tag=False):
    """How `fedge server` runs rounds over a network; simulations ignore these options.

    If the same clients answer in time, results do not depend on them.
    """

    listen: Annotated[str, Meta(description="address and port")] = "127.0.0.1:8443"
    min_clients: Annotated[
        int, Meta(ge=1, le=1_000_000, description="connected clients that a round needs to start")
    ] = 1
    wait_s: Annotated[Seconds, Meta(description="seconds to wait for min_clients; then the round is void")] = 600.0
    fraction: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="fraction of the clients that accepted; once it has reported, an exchange closes after grace_s",
        ),
    ] = 0.9
    grace_s: Annotated[
        float, Meta(ge=0, le=1e7, description="seconds that the remaining clients then have to report")
    ] = 30.0
    deadline_s: Annotated[Seconds, Meta(description="seconds after which an exchange closes in any case")] = 3600.0
    lease_s: Annotated[
        Seconds, Meta(description="seconds of silence after which a client is dropped from an exchange")
    ] = 30.0
    over_selection: Annotated[
        float,
        Meta(
            ge=1,
            le=10,
            description="factor that enlarges the cohort; an exchange closes when the planned number has reported",
        ),
    ] = 1.0
    evaluate_s: Annotated[Seconds, Meta(description="seconds after which an evaluation closes")] = 600.0
    linger_s: Annotated[
        float,
        Meta(ge=0, le=1e7, description="seconds the server stays up after the end to notify all clients"),
    ] = 60.0
    max_samples: Annotated[int, Meta(ge=1, le=1 << 40, description="samples that one client may register")] = 1_000_000
    max_clients: Annotated[int, Meta(ge=1, le=1_000_000, description="clients that may join the run")] = 100_000
    buffer_bytes: Annotated[
        Bytes,
        Meta(description="memory for uploads in flight, which limits their number"),
    ] = 64 << 20
    min_rate: Annotated[
        float,
        Meta(ge=0, description="bytes/s; an upload that is slower for 10 s gives up its slot to others"),
    ] = 1024.0
