"""`fedge clients`"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedge.cli.parameters import Format, complete_run
from fedge.core.errors import RunError
from fedge.core.printable import printable

if TYPE_CHECKING:
    from rich.text import Text

    from fedge.net.registry import ClientRow

_HEAD = ("number", "name", "state", "last seen", "rounds", "down", "up", "rejected", "declined", "certificate until")
_RIGHT = ("number", "last seen", "rounds", "down", "up", "rejected", "declined")
_STYLES = {"state": {"away": "yellow"}}
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def clients(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="A run of fedge server; default: the newest.", autocompletion=complete_run),
    ] = None,
    runs: Annotated[Path, typer.Option("--runs", metavar="DIR", help="Directory to search for the newest run.")] = Path(
        "runs"
    ),
    format: Format = "text",
) -> None:
    """List the clients of a server's run.

    Shows each client's state, when it was last seen, the rounds in which the
    server received its work, its bytes down and up, how often it was rejected,
    how often it declined, and when its certificate expires. Clients that could
    not join are listed with the reason.

    Examples:

      fedge clients
      fedge clients runs/first --format json
    """
    from fedge.cli.output import say, say_json
    from fedge.core.lock import holder
    from fedge.net.registry import AWAY, read_clients
    from fedge.net.status import read_status
    from fedge.runs import files

    path = run if run is not None else _newest(runs)
    found = read_clients(path / files.REGISTRY)
    if holder(path / files.LOCK) is None:  # a killed server could not record that its clients left
        found = [client._replace(state=AWAY) for client in found]
    status = read_status(path / files.STATUS)
    not_joined = status.not_joined if status else {}
    if format == "json":
        entries = [_entry(client) for client in found]
        say_json({"run": printable(str(path)), "clients": entries, "not_joined": not_joined})
        return
    say(_table(found, time.time()) if found else f"no client has joined {path} yet")
    for name, reason in not_joined.items():
        say(printable(f"{name} could not join: {reason}"))


def _newest(folder: Path) -> Path:
    """Return the server run written to last; raise a RunError if the folder has none."""
    from fedge.runs import files, find_runs

    registries = [run.path / files.REGISTRY for run in find_runs(folder)]
    times = {file.parent: _written_at(file) for file in registries if file.is_file()}
    if not times:
        raise RunError(f"no server run in {folder}; start one with `fedge server FILE`, or pass a run directory")
    return max(times, key=lambda path: times[path])


def _written_at(registry: Path) -> float:
    log = registry.with_name(f"{registry.name}-wal")
    return max(file.stat().st_mtime for file in (registry, log) if file.exists())


def _entry(client: ClientRow) -> dict[str, Any]:
    from fedge.net.events import utc

    times = {"joined": utc(client.joined), "last_seen": utc(client.last_seen)}
    return client._asdict() | times | {"expires": None if client.expires is None else utc(client.expires)}


def _table(found: Sequence[ClientRow], now: float) -> Text:
    from fedge.cli.text_table import draw_table
    from fedge.core.fields import describe
    from fedge.net.events import utc

    rows = (
        (
            str(client.number),
            client.name,
            client.state,
            _ago(now - client.last_seen),
            str(client.rounds),
            describe("bytes_down").write(client.bytes_down),
            describe("bytes_up").write(client.bytes_up),
            str(client.rejected),
            str(client.declined),
            "–" if client.expires is None else utc(client.expires)[:10],
        )
        for client in found
    )
    return draw_table(_HEAD, rows, _RIGHT, _STYLES)


def _ago(seconds: float) -> str:
    """`now`, `5 min ago`, `2 d ago`"""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return "now"
