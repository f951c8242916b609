"""What tests read of a networked run: its event log, and the names of all transitions."""

from __future__ import annotations

import json
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from fedge.net.round import ROUND_TRANSITIONS
from fedge.net.task import TASK_TRANSITIONS, Transition


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return the events of a log, oldest first; an incomplete last line is left out."""
    older = takewhile(Path.exists, (path.with_name(f"{path.name}.{number}") for number in count(1)))
    files = [*reversed([*older]), path]
    data = b"".join(file.read_bytes() for file in files if file.exists())
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def transitions() -> list[str]:
    """Return the names of all transitions of rounds and tasks, as observers receive them."""
    rounds = [Transition("round", *row, 0.0) for row in _rows(ROUND_TRANSITIONS)]
    return [each.name for each in [*rounds, *(Transition("task", *row, 0.0) for row in _rows(TASK_TRANSITIONS))]]


def _rows(table: Any) -> list[tuple[str, str]]:
    return [(before, after) for before, follow in table.items() for after in sorted(follow)]
