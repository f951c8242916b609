"""The `fedge` command line, one file per command.

A command imports its dependencies when it runs, so that help and completion stay fast.
"""

import io
import os
import sys
from typing import Annotated

import typer

from fedge.cli import (
    client,
    clients,
    config,
    costs,
    data,
    export,
    info,
    list,
    new,
    pki,
    plot,
    report,
    resume,
    run,
    server,
    show,
    sweep,
    view,
)
from fedge.cli.errors import EXIT_CODES, Reporting, abandon_stdout

_HELP = """Federated learning for the network edge: simulate, cost and compare algorithms.

  fedge new experiment first  write an experiment file to start from
  fedge info algorithms       list the available algorithms
  fedge costs first.toml      estimate the costs of an experiment
  fedge run first.toml        train an experiment
  fedge sweep grid.toml       train every combination of settings
  fedge list                  list runs
  fedge show runs             compare runs
  fedge view runs             compare runs in a browser, live
  fedge server first.toml     train with real clients over a network
"""

_EPILOG = "Exit codes:\n\n" + "\n".join(f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES.items())

app = typer.Typer(
    name="fedge",
    cls=Reporting,
    help=_HELP,
    epilog=_EPILOG,
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("resume")(resume.resume)
app.command("sweep")(sweep.sweep)
app.command("list")(list.list_runs)
app.command("show")(show.show)
app.command("clients")(clients.clients)
app.command("plot")(plot.plot)
app.command("report")(report.report)
app.command("view")(view.view)
app.command("export")(export.export)
app.command("config")(config.config)
app.command("costs")(costs.costs)
app.command("info")(info.info)
app.add_typer(new.app, name="new")
app.add_typer(data.app, name="data")
app.command("server")(server.server)
app.add_typer(client.app, name="client")
app.add_typer(pki.app, name="pki")


def _print_version(wanted: bool) -> None:
    if wanted:
        from fedge import __version__

        typer.echo(f"fedge {__version__}")
        raise typer.Exit


@app.callback()
def fedge(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _open_closed_streams() -> None:
    """Reopen streams closed by `>&-`: otherwise the next opened file gets their descriptor, and our output with it."""
    if sys.stdout is None:  # read-only, so that printing a result raises an error instead of losing it
        os.dup2(os.open(os.devnull, os.O_RDONLY), 1)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    if sys.stderr is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8")


def main() -> None:
    """Run the command line with this process's arguments."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # file names need not be valid UTF-8
    try:
        try:
            app(prog_name="fedge")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe
        abandon_stdout()
        sys.exit(1)
