"""A list of runs as text and as JSON: selected, sorted and grouped by the code of the results page."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.text import Text

from fedge.cli.text_table import draw_table
from fedge.core.errors import RunError
from fedge.core.fields import describe
from fedge.core.parts import short_name
from fedge.core.printable import printable
from fedge.report.collect import damage
from fedge.runs import Run

if TYPE_CHECKING:
    from fedge.view.run_entry import RunEntry

_STYLES = {"complete": "green", "running": "cyan", "elsewhere": "cyan", "unfinished": "yellow", "damaged": "red"}


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


class ListedRuns(NamedTuple):
    """The selected rows of a folder with `num_runs` runs; `texts` has the chosen columns as text."""

    rows: Sequence[Mapping[str, Any]]
    num_runs: int
    columns: Sequence[Mapping[str, Any]]
    texts: Sequence[Mapping[str, str]]
    grouped: bool

    def table(self) -> Text:
        """Return the rows as a table for a terminal."""
        chosen = [_head(column) for column in self.columns]
        right = [_head(column) for column in self.columns if column["role"] == "result"]
        if self.grouped:
            cells = [
                (row["group"], f"{row['finished']} of {row['count']}", *texts.values())
                for row, texts in zip(self.rows, self.texts, strict=True)
            ]
            return draw_table(("group", "finished", *chosen), cells, ("finished", *right), {})
        head = ("name", "status", "rounds", *(chosen or ("accuracy", "seed")), "algorithm", "path")
        lines = [_cells(row, texts) for row, texts in zip(self.rows, self.texts, strict=True)]
        return draw_table(head, lines, ("rounds", "accuracy", "seed", *right), {"status": _STYLES})


def list_selected(folder: Path, one: Mapping[str, str], many: Mapping[str, Sequence[str]]) -> ListedRuns:
    """Return the runs selected by query parameters of the results page: `one` with a single value each, `many` with
    several. Stores nothing and, like other commands, reads files that are links. Raises RunError or ConfigError.
    """
    from fedge.view.histories import Histories
    from fedge.view.notes import Notes
    from fedge.view.run_index import NOT_STORED, RunIndex
    from fedge.view.run_rows import RunTable
    from fedge.view.selection import GivenParameters, RunSelection

    if not folder.is_dir():
        raise RunError(f"no directory at {folder}: expected a run, or a directory with runs in it")
    wanted = RunSelection.parse(GivenParameters(one, many)).whole()
    index = RunIndex(folder, NOT_STORED, links=True)
    histories = Histories(index)
    entries = index.scan()
    for _ in histories.refresh(one for one in entries.values() if wanted.which == "best" or one.summary is None):
        pass
    page = RunTable(index, Notes(index.root), histories).page(wanted)
    columns = page["columns"] if wanted.group or wanted.columns else []
    texts = [{column["name"]: _text(row["values"][column["name"]]) for column in columns} for row in page["rows"]]
    paths = {each.key: folder / os.fsdecode(each.folder) for each in entries.values()}
    if wanted.group:
        rows = [_group(row, paths) for row in page["rows"]]
    else:
        rows = [_run(row, entries[row["key"]], paths[row["key"]], bool(columns)) for row in page["rows"]]
    return ListedRuns(rows, page["total"], columns, texts, bool(wanted.group))


def _run(row: Mapping[str, Any], known: RunEntry, path: Path, chosen: bool) -> dict[str, Any]:
    """Return `entry` of a run; it is read again only if it is damaged or its last records have no accuracy.

    Only regular files are read, because a pipe may never end.
    """
    found: dict[str, Any] = {"path": printable(str(path)), "status": row["status"], "problem": None}
    if known.problem is None and known.last.get("accuracy") is not None:
        found |= {"name": known.settings.get("name"), "algorithm": row["algorithm"], "seed": known.settings.get("seed")}
        found |= {"rounds": row["round"], "num_rounds": row["num_rounds"], "accuracy": known.last["accuracy"]}
    else:
        again = found if known.odd else entry(Run(path))
        problem = again["problem"] or known.problem
        if problem is None:
            found = again | {"status": row["status"]}
        else:
            found |= {"status": "damaged", "problem": problem}
    return found | {"values": {name: cell["value"] for name, cell in row["values"].items()}} if chosen else found


def _group(row: Mapping[str, Any], paths: Mapping[str, Path]) -> dict[str, Any]:
    values = {
        name: {key: value for key, value in cell.items() if key != "text"} if "n" in cell else cell["value"]
        for name, cell in row["values"].items()
    }
    found = {name: row[name] for name in ("group", "count", "finished", "mixed")}
    return found | {"paths": [printable(str(paths[key])) for key in row["keys"]], "values": values}


def _text(cell: Mapping[str, Any]) -> str:
    return f"{cell['text']} (n {cell['n']} of {cell['of']})" if "n" in cell else str(cell["text"])


def _head(column: Mapping[str, Any]) -> str:
    return f"{column['name']} ({column['which']})" if column["which"] else column["name"]


def _algorithm(run: Run) -> Any:
    name = run.config.get("algorithm", {}).get("name")
    return short_name(name) if isinstance(name, str) else name


def _cells(found: Mapping[str, Any], texts: Mapping[str, str]) -> tuple[str, ...]:
    accuracy = found.get("accuracy")
    written = "–" if accuracy is None else describe("accuracy").write(accuracy)
    return (
        _written(found.get("name")),
        found["status"],
        f"{found['rounds']}/{_written(found['num_rounds'])}" if "rounds" in found else "–",
        *(texts.values() if texts else (written, _written(found.get("seed")))),
        _written(found.get("algorithm")),
        found["path"],
    )


def _written(value: object) -> str:
    return "–" if value is None else str(value)
