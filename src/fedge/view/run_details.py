"""The complete description of one run, for its page."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedge.core.errors import FedgeError
from fedge.core.fields import OwnFields, describe
from fedge.core.lock import remote_holder
from fedge.core.printable import printable, printable_command
from fedge.report.edge_rates import edge_note
from fedge.runs import Run, files, follow
from fedge.view.run_entry import RunEntry, status_of

_PARTS = {
    "bytes": ("bytes_down", "bytes_up", "bytes_backhaul"),
    "sim_seconds": ("sim_down_s", "sim_compute_s", "sim_wait_s", "sim_up_s"),
}
"""The parts of each total cost of a run."""
_COSTS = ("messages", "local_steps", "flops", "energy_j", "seconds")


def describe_run(entry: RunEntry, run: Run, root: Path) -> dict[str, Any]:
    """Return the answer of `/api/run/KEY`; for a damaged run, its problem."""
    status = status_of(entry, root)
    found: dict[str, Any] = {
        "key": entry.key,
        "name": entry.name,
        "path": entry.path,
        "algorithm": entry.algorithm,
        "status": status,
        "problem": entry.problem,
        "networked": entry.networked,
        "clock": entry.clock,
        "round": entry.round,
        "num_rounds": entry.num_rounds,
        "metric": entry.metric,
    }
    if entry.problem is not None:
        return found
    try:
        news = follow(run.path)
        records, own = news.records, run.own_fields
        return found | {
            "config": run.config,
            "environment": run.environment,
            "summary": run.summary,
            "results": _results(run.summary or {}, own),
            "records": records,
            "cursor": news.cursor._asdict(),
            "fields": describe_fields(records, own),
            "costs": _costs(records),
            "clients": run.clients,
            "edge": len(run.edge),
            "edge_rounds": [line["round"] for line in run.edge if isinstance(line.get("round"), int)],
            "edge_note": edge_note(run.effective),
            "host": remote_holder(run.path / files.LOCK),
            "last_record_s": _age(run.path / files.ROUNDS),
            "show": printable_command(["fedge", "show", run.path]),
            "resume": printable_command(["fedge", "resume", run.path]) if status == "unfinished" else None,
        }
    except FedgeError as error:
        return found | {"status": "damaged", "problem": printable(str(error), "\n")}


def describe_fields(records: Sequence[Mapping[str, Any]], own: OwnFields) -> list[dict[str, Any]]:
    """Return title, unit and direction of each recorded numeric field."""
    names = dict.fromkeys(
        name for record in records for name, value in record.items() if isinstance(value, int | float)
    )
    found = []
    for name in names:
        declared = describe(name, own)
        found.append(
            {
                "name": name,
                "title": declared.title,
                "role": declared.role,
                "better": declared.better,
                "units": [{"name": unit.name, "size": unit.size} for unit in declared.units],
            }
        )
    return found


def _results(summary: Mapping[str, Any], own: OwnFields) -> list[dict[str, Any]]:
    """Return the summary with titles and units."""
    found = []
    for name, value in summary.items():
        declared = describe(name, own)
        text = "–" if value is None else declared.write(value)
        found.append({"name": name, "title": declared.title, "value": value, "text": text})
    return found


def _costs(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the totals so far, with a breakdown into parts."""
    found = []
    for whole, parts in _PARTS.items():
        sums = {name: _total(records, name) for name in parts}
        known = {name: value for name, value in sums.items() if value is not None}
        total = sum(known.values()) if whole == "bytes" else _total(records, whole)
        if known and total is not None:
            shares = [_cost(name, value) | {"share": value / total if total else 0.0} for name, value in known.items()]
            title = {"title": "traffic"} if whole == "bytes" else {}  # includes the backhaul, unlike `bytes`
            found.append(_cost(whole, total) | title | {"parts": shares})
    found += [_cost(name, value) for name in _COSTS if (value := _total(records, name)) is not None]
    return found


def _cost(name: str, value: float) -> dict[str, Any]:
    declared = describe(name)
    return {"name": name, "title": declared.title, "value": value, "text": declared.write(value)}


def _total(records: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [record[name] for record in records if isinstance(record.get(name), int | float)]
    return sum(values) if values else None


def _age(file: Path) -> float | None:
    try:
        return max(0.0, time.time() - file.stat().st_mtime)
    except OSError:
        return None
