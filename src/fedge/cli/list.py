"""`fedge list`"""

from pathlib import Path
from typing import Annotated

import typer

from fedge.cli.parameters import Format, complete_run


def list_runs(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder to search.", autocompletion=complete_run)
    ] = Path("runs"),
    format: Format = "text",
) -> None:
    """List the runs in a folder and below it.

    Shows the progress of each run, its last accuracy and its path. A run is
    complete, running, unfinished (`fedge resume` continues it) or damaged.

    Examples:

      fedge list
      fedge list /data/runs --format json
    """
    from fedge.cli.entries import entry, table
    from fedge.cli.output import say, say_json, warn
    from fedge.runs import find_runs

    entries = [entry(run) for run in find_runs(folder)]
    if format == "json":
        say_json(entries)
        return
    if entries:
        say(table(entries))
    else:
        warn(f"no runs in {folder}; start one with `fedge run FILE`")
    for found in entries:
        if found["problem"]:
            warn(found["problem"])
