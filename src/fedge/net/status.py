"""The current status of a networked run, for pages and scripts: `status.json`, replaced once per second."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from fedge.core.printable import printable
from fedge.core.storage import write_atomic
from fedge.net.events import utc
from fedge.runs import files

DONE = "done"
"""The state of a complete run after all clients were told, or the server stopped waiting for them."""
_NUM_MOMENTS = 11  # samples over which throughput is measured: ten seconds, at one sample per second


class ServerStatus(msgspec.Struct, kw_only=True, frozen=True):
    """The status of a run at one moment. Bytes are payload bytes since the server started."""

    run: str  # the run's id
    state: str  # of the round, such as "open"; or "waiting", "done"
    round: int = 0
    num_rounds: int | None = None
    exchange: int = 0
    attempt: int = 0
    waiting_for: str = ""  # what the server waits for; empty if it does not wait
    deadline_s: float | None = None  # until the exchange closes or the wait ends
    clients: dict[str, int] = {}  # number of clients in each state
    not_joined: dict[str, str] = {}  # latest reasons why clients could not join, by name
    asked: int = 0  # of this exchange
    accepted: int = 0
    received: int = 0
    bytes_down: int = 0
    bytes_up: int = 0


class PublishedStatus(ServerStatus, kw_only=True, frozen=True):
    """The content of status.json."""

    time: str  # UTC
    pid: int
    down_bytes_per_s: float = 0.0
    up_bytes_per_s: float = 0.0


class StatusFile:
    """Writes status.json, with the time and the recent throughput."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self._moments: deque[tuple[float, int, int]] = deque(maxlen=_NUM_MOMENTS)

    def write(self, status: ServerStatus) -> None:
        """Replace the file atomically. Raises StorageError."""
        now = self._clock()
        self._moments.append((now, status.bytes_down, status.bytes_up))
        then, down, up = self._moments[0]
        seconds = max(now - then, 1e-9)
        published = PublishedStatus(
            **msgspec.structs.asdict(status),
            time=utc(now),
            pid=os.getpid(),
            down_bytes_per_s=round((status.bytes_down - down) / seconds, 1),
            up_bytes_per_s=round((status.bytes_up - up) / seconds, 1),
        )
        text = printable(files.encode_pretty(published).decode(), "\n")
        write_atomic(self._path, text.encode(), "run the command again", durable=False)


def read_status(path: Path) -> PublishedStatus | None:
    """Return the last published status; None if there is none. Raises RunError if the file is damaged."""
    data = files.read_bytes(path)
    if data is None:
        return None
    found = files.decode(path, data)
    files.check_types(path, found, PublishedStatus)
    return msgspec.convert(found, PublishedStatus)
