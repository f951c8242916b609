"""`fedge resume`"""

from pathlib import Path
from typing import Annotated

import typer

from fedge.cli.parameters import AcceptCode, Changes, Format, Quiet, complete_run


def resume(
    path: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="A run, or the directory of its repeats.", autocompletion=complete_run),
    ],
    changes: Changes = None,
    accept_code: AcceptCode = False,
    quiet: Quiet = False,
    format: Format = "text",
) -> None:
    """Go on with a run from its last checkpoint.

    The result is the same as if it had never stopped. With more rounds, a
    complete run goes on too. If your own Python files are not those that the
    run was made with, it is refused without --accept-code.

    Examples:

      fedge resume runs/first
      fedge resume runs/first --set rounds=500
    """
    from fedge.cli.comparison import say_trained
    from fedge.cli.display import watching
    from fedge.experiment import start as experiment

    with watching(quiet) as progress:
        resumed = experiment.resume(path, changes or (), progress, accept_code)
    say_trained([resumed], format, quiet)
