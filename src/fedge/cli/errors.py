"""Error reporting and exit codes of the command line."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from fedge.core.errors import ConfigError, FedgeError
from fedge.core.printable import printable

EXIT_CODES = {
    0: "success",
    1: "any other error",
    2: "the command line or the configuration is wrong",
    3: "a data file is missing or corrupt, or data cannot be partitioned",
    4: "the model cannot be built, or does not fit the data or the algorithm",
    5: "training diverged: a loss or an update is not finite",
    6: "the run directory is missing, not a run, of a newer format, or in use",
    7: "the disk is full, read-only, or access was denied",
    8: "encoded bytes are malformed",
    9: "the network: server not found, bad certificate, or client refused",
    130: "interrupted by Ctrl-C",
    143: "a server, a client or the results page shut down cleanly on SIGTERM",
}


class Reporting(TyperGroup):
    """A command group that turns errors into a message and an exit code instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except FedgeError as error:
            if os.environ.get("FEDGE_DEBUG") == "1":
                traceback.print_exc()
            typer.echo(printable(written(error), "\n\t"), err=True)
            raise typer.Exit(error.exit_code) from None
        except MemoryError as error:
            typer.echo(f"error: not enough memory ({error}); choose a smaller model, data set or cohort", err=True)
            raise typer.Exit(FedgeError.exit_code) from None


def written(error: FedgeError) -> str:
    """Return the message to print; several problems become a list."""
    if isinstance(error, ConfigError) and len(error.problems) > 1:
        return "\n  - ".join([f"error: {len(error.problems)} problems", *error.problems])
    return f"error: {error}"


def abandon_stdout() -> None:
    """Redirect stdout to /dev/null, so that Python does not fail again when it flushes on exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
