"""The log of a run, newest first: rounds as on a terminal, and the events of a networked run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedge.report.run_totals import RunTotals
from fedge.view.server_details import new_events

MOST_ROUNDS = 100


def read_log(folder: Path, run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the last lines of a run's log; `run` is the result of `describe_run`."""
    records, config = run.get("records") or [], run.get("config") or {}
    generation = (run.get("cursor") or {}).get("generation", 0)
    environment = run.get("environment") or {}
    totals = RunTotals(run.get("num_rounds") or 0, 0.0)
    lines = []
    for record in records:
        totals.add(record)
        lines.append({"round": record["round"], "text": totals.line()})
    notes = [f"started {environment['started']}"] if environment.get("started") else []
    if (restarts := generation // 2 - 1) > 0:  # it increases by two whenever a run starts
        notes.append("resumed once" if restarts == 1 else f"resumed {restarts} times")
    changes = config.get("code_changes") or []
    notes += [f"a change of the code after round {change.get('round')} was accepted" for change in changes]
    if run.get("summary"):
        notes.append("complete")
    return {
        "notes": notes,
        "rounds": lines[::-1][:MOST_ROUNDS],
        "num_rounds": len(lines),
        "events": new_events(folder, None)[0][::-1] if run.get("networked") else [],
    }
