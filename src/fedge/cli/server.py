"""`fedge server`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fedge.cli.network import Insecure, Listen, Pki
from fedge.cli.parameters import Changes, ExperimentFile, Format, Quiet, RunsFolder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedge.config import Config
    from fedge.net.address import Address


def server(
    file: ExperimentFile,
    changes: Changes = None,
    listen: Listen = None,
    runs: RunsFolder = Path("runs"),
    pki: Pki = None,
    insecure: Insecure = False,
    quiet: Quiet = False,
    format: Format = "text",
) -> None:
    """Train an experiment with real clients that connect over a network.

    The run's directory is named after the experiment. Every round is
    committed to disk: however the server was stopped, the same command
    resumes the run. A complete run is not trained again. Settings that
    simulate a network are rejected.

    Examples:

      fedge server first.toml
      fedge server first.toml --listen 0.0.0.0:8443 --set net.min_clients=3
      fedge server first.toml --insecure
    """
    from fedge.cli.network import listening, refuse_windows

    refuse_windows()
    from fedge.config import load

    serve_run(load(file, [*(changes or ()), *listening(listen)]), runs, pki, insecure, quiet, format)


def serve_run(
    config: Config, runs: Path, pki: Path | None, insecure: bool, quiet: bool, format: Literal["text", "json"]
) -> None:
    """Start or resume the run of a configuration and print its results; a complete run is not trained again."""
    from fedge.cli.comparison import say_trained
    from fedge.cli.network import secure
    from fedge.cli.output import tell
    from fedge.experiment.networked_check import check_networked
    from fedge.experiment.server_run import server_run_status

    notices = check_networked(config)
    address, certificates = secure(config.net.listen, pki, insecure)
    path = runs / config.name
    if server_run_status(path, config) == "complete":
        if not quiet:
            tell(f"{path}: is complete already")
    else:
        path = _serve(config, runs, address, certificates, notices, quiet)
    say_trained([path], format, quiet)


def _serve(config: Config, runs: Path, address: Address, pki: Path | None, notices: Sequence[str], quiet: bool) -> Path:
    from fedge.cli.network import ending_in_order
    from fedge.cli.server_view import watching_server
    from fedge.experiment.networked_server import serve

    with ending_in_order("resume"), watching_server(quiet) as watch:
        for text in notices:
            watch.notice(text)
        return serve(
            config,
            runs=runs,
            listen=str(address),
            pki=pki,
            progress=watch,
            observer=watch,
            on_port=lambda port: watch.notice(f"listening on {address._replace(port=port)}"),
        )
