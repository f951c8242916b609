"""`fedge view`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedge.cli.parameters import complete_run


def view(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of runs.", autocompletion=complete_run)
    ] = Path("runs"),
    host: Annotated[
        str, typer.Option("--host", metavar="H", help="The address to listen on; 0.0.0.0 for all interfaces.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="N", min=1, max=65535, help="The port; default: the first free one from 8765 on."
        ),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the default browser.")] = False,
    root_path: Annotated[
        str, typer.Option("--root-path", metavar="P", help="The path below which a proxy serves the page: /fedge.")
    ] = "",
    allowed: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", metavar="NAME", help="Also accept this host name, such as a proxy's. May be repeated."
        ),
    ] = None,
) -> None:
    """Open a local web page to compare runs and watch them train; needs fedge\\[page].

    The page reads run directories only and loads nothing from the network. By
    default, only this machine can connect. Every request needs the token in the
    printed address. On a remote machine forward the port:
    ssh -L 8765:localhost:8765 HOST

    Examples:

      fedge view
      fedge view /data/runs --open
      fedge view runs --port 9000
      fedge view runs --root-path /fedge --allow-host lab.example.org
    """
    from fedge.cli.network import ending_in_order
    from fedge.cli.output import say
    from fedge.core.errors import FedgeError, RunError

    try:
        from fedge.view.serve import address, check_root_path, listen, rules_of, serve
    except ImportError as error:
        raise FedgeError(
            f"the results page needs {error.name}, which is not installed; pip install 'fedge[page]'"
        ) from None
    root = check_root_path(root_path)
    if not folder.is_dir():
        raise RunError(f"no folder at {folder}: expected one with runs in it; start a run with `fedge run FILE`")
    listening = listen(host, port)
    number = listening.getsockname()[1]
    rules = rules_of(host, number, allowed or [], root)
    there = address(host, number, rules)
    with ending_in_order("open the page again"):
        say(f"results page: {there}")
        sys.stdout.flush()  # a script that starts the page may read the address from a pipe or a file
        if open_browser:
            import webbrowser

            webbrowser.open(there)
        serve(folder, listening, rules)
