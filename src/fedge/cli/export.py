"""`fedge export`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fedge.cli.parameters import RunPaths


def export(
    paths: RunPaths,
    to: Annotated[
        Literal["csv", "parquet", "tensorboard", "mlflow", "wandb", "hfl-json"],
        typer.Option(
            "--to",
            metavar="csv|parquet|tensorboard|mlflow|wandb|hfl-json",
            help="Target format; all but hfl-json need an optional extra, which an error names if it is missing.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="A file for csv, parquet and mlflow; a folder for tensorboard and wandb; either for hfl-json (a file "
            "if it ends in .json).",
        ),
    ],
) -> None:
    """Export runs to the format of another tool.

    `csv` and `parquet` are tables with a row per round. `tensorboard`,
    `mlflow` (an SQLite file) and `wandb` (offline runs) can be opened with
    these tools. `hfl-json` is the result file format of Serena (2020), with
    the mean over seeds. Nothing is sent over the network.

    Examples:

      fedge export runs --to csv -o runs.csv
      fedge export runs/fedavg --to tensorboard -o events
      fedge export runs --to hfl-json -o results
    """
    from fedge.cli.output import say, warn
    from fedge.report.collect import collect
    from fedge.report.exports import SINKS

    runs, problems = collect(paths)
    for problem in problems:
        warn(problem)
    SINKS[to](runs, output)
    say(f"exported: {output}")
