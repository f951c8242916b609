"""What a list says of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from fedge.core.fields import describe
from fedge.core.printable import printable
from fedge.runs import Run

_STYLES = {"complete": "green", "running": "cyan", "unfinished": "yellow", "damaged": "red"}


def entry(run: Run) -> dict[str, Any]:
    """The run in a few words; of a damaged one no more than its problem."""
    found: dict[str, Any] = {"path": printable(str(run.path)), "status": run.status, "problem": run.problem}
    if run.problem is not None:
        return found
    config = run.config
    return found | {
        "name": config.get("name"),
        "algorithm": config.get("algorithm", {}).get("name"),
        "seed": config.get("seed"),
        "rounds": run.last("round") or 0,
        "num_rounds": config.get("rounds"),
        "accuracy": run.last("accuracy"),
    }


def table(entries: Sequence[dict[str, Any]]) -> Table:
    """Entries for a terminal."""
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("name", "status", "rounds", "accuracy", "seed", "algorithm", "path"):
        right = title in ("rounds", "accuracy", "seed")
        shown.add_column(title, justify="right" if right else "left", overflow="fold")
    for found in entries:
        accuracy = found.get("accuracy")
        shown.add_row(
            Text(_written(found.get("name"))),
            Text(found["status"], style=_STYLES[found["status"]]),
            f"{found['rounds']}/{_written(found['num_rounds'])}" if "rounds" in found else "–",
            "–" if accuracy is None else describe("accuracy").write(accuracy),
            _written(found.get("seed")),
            Text(_written(found.get("algorithm"))),
            Text(found["path"]),
        )
    return shown


def _written(value: object) -> str:
    return "–" if value is None else str(value)
