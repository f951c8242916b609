"""A networked run as described by its server in `status.json` and `events.jsonl`, which are only read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from fedge.core.errors import FedgeError, RunError
from fedge.report.throughput import measure_throughput
from fedge.runs import files
from fedge.runs.last_events import LAST_BYTES, EventCursor, read_last_events
from fedge.view.run_entry import MOST_BYTES, tell_size

MOST_EVENTS = 200
_DEAD_S = 10.0  # a running server replaces its status once per second
MOST_CLIENTS = 500
_TAIL_BYTES = 256 << 10
_REJECTIONS = ("reject", "refuse", "drop", "fail", "decline", "late", "void")
_STATES = {
    "join": "waiting",
    "offer": "asked",
    "accept": "accepted",
    "decline": "declined",
    "fetch": "downloading",
    "work": "training",
    "finish": "trained",
    "upload": "uploading",
    "receive": "received",
    "reject": "rejected",
    "late": "late",
    "drop": "dropped",
    "withdraw": "withdrawn",
    "fail": "failed",
    "leave": "left",
    "refuse": "refused",
}
"""The state of a client after its last event."""


class _StatusFields(msgspec.Struct):
    """The fields of status.json that the page uses."""

    state: str = ""
    time: str = ""
    round: int = 0
    num_rounds: int | None = None
    exchange: int = 0
    attempt: int = 0
    waiting_for: str = ""
    deadline_s: float | None = None
    clients: dict[str, int] = {}
    not_joined: dict[str, str] = {}
    asked: int = 0
    accepted: int = 0
    received: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    down_bytes_per_s: float = 0.0
    up_bytes_per_s: float = 0.0


def read_status(file: Path) -> dict[str, Any] | None:
    """Return the last status, with defaults for missing fields; None without a status. Raises FedgeError."""
    data = files.read_bytes(file)
    if data is None:
        return None
    if len(data) > MOST_BYTES:
        raise RunError(tell_size(file.name, len(data)))
    found = files.decode(file, data)
    files.check_types(file, found, _StatusFields)
    defaults: dict[str, Any] = msgspec.to_builtins(_StatusFields())
    return defaults | found


def describe_server(folder: Path, now_s: float) -> dict[str, Any]:
    """Return the answer of `/api/server/KEY`; for a damaged file, its problem."""
    found: dict[str, Any] = {"status": None, "problem": None, "age_s": None, "alive": False}
    try:
        found["status"] = status = read_status(folder / files.STATUS)
        if status is not None:
            found["age_s"] = age = _age(status, now_s)
            found["alive"] = age is not None and age < _DEAD_S
    except FedgeError as error:
        found["problem"] = str(error)
    history, cursor, cut = read_last_events(folder, LAST_BYTES)
    people = _clients(history)
    found["events"] = history[-MOST_EVENTS:]
    found["rejections"] = [event for event in history if event.get("event") in _REJECTIONS][-50:]
    found["clients"], found["num_clients"] = people[:MOST_CLIENTS], len(people)
    found["names"] = {str(one["client"]): one["name"] for one in people if one["name"]}
    found["transfers"] = measure_throughput(history, cut) is not None
    found["cursor"] = cursor._asdict()
    return found


def _clients(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each client with its last event, by number; clients that never joined, by name."""
    found: dict[Any, dict[str, Any]] = {}
    for event in history:
        number, name, kind = event.get("client"), event.get("name"), event.get("event")
        key = number if isinstance(number, int) else name
        if not isinstance(key, int | str) or not isinstance(kind, str) or kind not in _STATES:
            continue
        known = found.setdefault(key, {"client": number, "name": None, "answers": 0, "rejected": 0})
        known["name"] = name or known["name"]
        known |= {"state": _STATES[kind], "time": event.get("time"), "round": event.get("round")}
        known["reason"] = event.get("reason")
        known["answers"] += kind == "receive"
        known["rejected"] += kind in ("reject", "late", "drop", "fail")
    return [found[key] for key in sorted(found, key=lambda key: (isinstance(key, str), key))]


def new_events(folder: Path, cursor: EventCursor | None) -> tuple[list[dict[str, Any]], EventCursor]:
    """Return the events since a cursor, at most the last 200, and the next cursor."""
    found = read_last_events(folder, _TAIL_BYTES, cursor)
    return found.events[-MOST_EVENTS:], found.cursor


def _age(status: Mapping[str, Any], now_s: float) -> float | None:
    """Return the seconds since a status was written; None if its time cannot be read or is in the future."""
    try:
        written = datetime.fromisoformat(str(status.get("time")))
        age = now_s - written.astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, age) if age > -_DEAD_S else None  # the clocks of two machines may differ by seconds
