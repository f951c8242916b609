"""The `fedge` command, one file for each of its commands.

A command imports what it needs when it runs, so that help and completion answer at once.
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

  fedge new experiment first write an experiment file to start from
  fedge info algorithms      what there is to choose from
  fedge costs first.toml     what an experiment will cost
  fedge run first.toml       train what an experiment file says
  fedge sweep grid.toml      the same for every combination of settings
  fedge list                 the runs there are
  fedge show runs            how they compare
  fedge view                 the same in a browser, live
  fedge server first.toml    train with real clients over a network
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
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def _open_closed_streams() -> None:
    """Open what was closed by `>&-`: else the next file that is opened gets its number, and what is printed."""
    if sys.stdout is None:  # only for reading, so that a result that gets lost is an error
        os.dup2(os.open(os.devnull, os.O_RDONLY), 1)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    if sys.stderr is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8")


def main() -> None:
    """Run the command line of this process."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files need not be text
    try:
        try:
            app(prog_name="fedge")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # whoever read has seen enough
        abandon_stdout()
        sys.exit(1)
