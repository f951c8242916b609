"""`fedge list`"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from fedge.cli.parameters import Format, complete_run


def list_runs(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder to search.", autocompletion=complete_run)
    ] = Path("runs"),
    search: Annotated[
        str | None,
        typer.Option(
            "--search", metavar="WORDS", help="Words that all occur in name, path, algorithm, data set, tags or note."
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="NAME<OP>VALUE",
            help="A condition on a setting or a result; OP is =, !=, <, <=, >, >= or ~ (contains). May be repeated.",
        ),
    ] = None,
    run: Annotated[
        list[str] | None,
        typer.Option("--run", metavar="KEY", help="A run by its key on the results page. May be repeated."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="settings|sweep|NAME",
            help="A row for runs that differ in the seed alone, for each sweep, or for each value of a setting.",
        ),
    ] = None,
    values: Annotated[
        Literal["last", "best", "at"],
        typer.Option(
            "--values",
            metavar="last|best|at",
            help="Which value of a metric to show: the last, the best, or at the round in --round.",
        ),
    ] = "last",
    round: Annotated[int | None, typer.Option("--round", metavar="N", help="The round for --values at.")] = None,
    sort: Annotated[
        str | None,
        typer.Option("--sort", metavar="NAME", help="A setting or a result; with a dash in front, descending."),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME",
            help="A setting or a result to show in place of accuracy and seed. May be repeated.",
        ),
    ] = None,
    format: Format = "text",
) -> None:
    """List the runs in a folder and below it.

    Shows the progress of each run, its last accuracy and its path. A run is
    complete, running, elsewhere (another host runs it), unfinished (`fedge
    resume` continues it) or damaged.

    The options choose, sort and group runs like the results page of `fedge
    view`, which prints the command for what it shows. A group is shown with the
    mean over seeds, its confidence interval and its number of runs.

    Examples:

      fedge list
      fedge list runs --where status=complete --sort -accuracy
      fedge list runs --where 'accuracy>=0.9' --where algorithm.name=fedavg
      fedge list runs --group settings --column accuracy --column rounds_to_target
      fedge list runs --values at --round 3 --column accuracy --column loss
      fedge list /data/runs --format json
    """
    from fedge.cli.listed_runs import list_selected
    from fedge.cli.output import say, say_json, warn

    given = {"q": search or "", "group": group or "", "values": values, "sort": sort or ""}
    given |= {} if round is None else {"round": str(round)}
    found = list_selected(folder, given, {"where": where or [], "run": run or [], "column": column or []})
    if format == "json":
        say_json(found.rows)
        return
    if found.rows:
        say(found.table())
    elif found.num_runs:
        warn(f"none of the {found.num_runs:,} runs in {folder} matches; drop a condition or a word")
    else:
        warn(f"no runs in {folder}; start one with `fedge run FILE`")
    for row in found.rows:
        if row.get("problem"):
            warn(row["problem"])
