"""Rows of a list of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from fedge.cli.text_table import draw_table
from fedge.core.fields import describe
from fedge.core.parts import short_name
from fedge.core.printable import printable
from fedge.report.collect import damage
from fedge.runs import Run

_HEAD = ("name", "status", "rounds", "accuracy", "seed", "algorithm", "path")
_RIGHT = ("rounds", "accuracy", "seed")
_STYLES = {"complete": "green", "running": "cyan", "unfinished": "yellow", "damaged": "red"}


def entry(run: Run) -> dict[str, Any]:
    """Return a run's path, status and key figures; for a damaged run only its path and problem."""
    problem = damage(run, lambda run: run.last("accuracy"))  # reads back until a record has an accuracy
    status = run.status if problem is None else "damaged"
    found: dict[str, Any] = {"path": printable(str(run.path)), "status": status, "problem": problem}
    if problem is not None:
        return found
    config = run.config
    return found | {
        "name": config.get("name"),
        "algorithm": _algorithm(run),
        "seed": config.get("seed"),
        "rounds": run.last("round") or 0,
        "num_rounds": config.get("rounds"),
        "accuracy": run.last("accuracy"),
    }


def _algorithm(run: Run) -> Any:
    name = run.config.get("algorithm", {}).get("name")
    return short_name(name) if isinstance(name, str) else name


def table(entries: Sequence[dict[str, Any]]) -> Text:
    """Return the entries as a table for a terminal."""
    return draw_table(_HEAD, map(_cells, entries), _RIGHT, {"status": _STYLES})


def _cells(found: dict[str, Any]) -> tuple[str, ...]:
    accuracy = found.get("accuracy")
    return (
        _written(found.get("name")),
        found["status"],
        f"{found['rounds']}/{_written(found['num_rounds'])}" if "rounds" in found else "–",
        "–" if accuracy is None else describe("accuracy").write(accuracy),
        _written(found.get("seed")),
        _written(found.get("algorithm")),
        found["path"],
    )


def _written(value: object) -> str:
    return "–" if value is None else str(value)
