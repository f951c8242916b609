"""`fedge resume`"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedge.cli.network import Insecure, Listen, Pki, listening
from fedge.cli.parameters import AcceptCode, Changes, Format, Quiet, complete_run
from fedge.core.errors import ConfigError, RunError


def resume(
    path: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run, or the directory of its repeats.", autocompletion=complete_run)
    ],
    changes: Changes = None,
    accept_code: AcceptCode = False,
    listen: Listen = None,
    pki: Pki = None,
    insecure: Insecure = False,
    quiet: Quiet = False,
    format: Format = "text",
) -> None:
    """Resume a run from its last checkpoint.

    The result is exactly the same as if the run had never stopped. To extend
    a complete run, set more rounds. If your own Python files have changed
    since the run started, it resumes only with --accept-code. For a run of
    `fedge server` the server starts again; --listen, --pki and --insecure
    apply to such runs only.

    Examples:

      fedge resume runs/first
      fedge resume runs/first --set rounds=500
    """
    from fedge.cli.comparison import say_trained
    from fedge.cli.watching import watching
    from fedge.experiment import start as experiment
    from fedge.experiment.server_run import is_server_run

    if is_server_run(path):
        _serve(path, [*(changes or ()), *listening(listen)], accept_code, pki, insecure, quiet, format)
        return
    if listen is not None or pki is not None or insecure:
        raise ConfigError(f"--listen, --pki and --insecure apply to runs of `fedge server` only; {path} is not one")
    with watching(quiet) as progress:
        resumed = experiment.resume(path, changes or (), progress, accept_code)
    say_trained([resumed], format, quiet)


def _serve(
    path: Path,
    changes: Sequence[str],
    accept_code: bool,
    pki: Path | None,
    insecure: bool,
    quiet: bool,
    format: Literal["text", "json"],
) -> None:
    from fedge.cli.server import serve_run
    from fedge.experiment.changed_settings import changed_config

    if accept_code:
        raise ConfigError(
            f"--accept-code: {path} is a run of `fedge server`, whose clients have the same files; restore the "
            "original files, or start a new run"
        )
    config = changed_config(path, changes)
    if not path.name:  # a path such as "."
        path = path.resolve()
    if path.name != config.name:
        raise RunError(f"{path} holds the run {config.name!r}; rename the directory to {config.name!r}")
    serve_run(config, path.parent, pki, insecure, quiet, format)
