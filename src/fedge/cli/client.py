"""`fedge client`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedge.cli import client_request
from fedge.cli.network import Insecure
from fedge.cli.parameters import Quiet
from fedge.core.errors import ConfigError

if TYPE_CHECKING:
    from fedge.net.client_options import ClientOptions

app = typer.Typer(
    no_args_is_help=True,
    help="""Take part in training on a server, and get the certificate for it.

    The client stays until the run is complete. It trains on its own data when
    it is asked to and its policy allows it, and sends updates of the model,
    never data. It retries for as long as the server cannot be reached. Killed
    at any moment, the same command continues.

    Examples:

      fedge client --server a.org:8443 --cert cert --data my-data --state state
      fedge client --server a.org:8443 --cert cert --data my.py:load --state state --policy ac --allow model.py
      fedge client --server localhost:8443 --insecure --name a --data first.toml#0 --state a
      fedge client request clinic-3
    """,
)
app.command("request")(client_request.request)


@app.callback(invoke_without_command=True)
def client(
    context: typer.Context,
    server: Annotated[str | None, typer.Option("--server", metavar="HOST:PORT", help="The server.")] = None,
    cert: Annotated[
        Path | None,
        typer.Option("--cert", metavar="DIR", help="Key and certificates; fedge client request makes the key."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="SPEC",
            help="The client's samples: a folder of fedge data split, a data file, my.py:load, or first.toml#3 for "
            "client 3 of an experiment.",
        ),
    ] = None,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="DIR", help="What this client, and no other, remembers.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="WHEN",
            help="When to accept work: always, hours=22-6, load=0.5 (load average per core), ac, unmetered, or "
            "my.py:decide; if repeated, all must agree.",
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="FILE",
            help="A file that the server may ask for, known by its content: FILE, or FILE.py:FUNCTION; may be "
            "repeated.",
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="N", min=1, help="Threads that compute; all cores if not given.")
    ] = None,
    proxy: Annotated[
        str | None, typer.Option("--proxy", metavar="URL", help="An HTTP proxy on the way to the server.")
    ] = None,
    reset_state: Annotated[
        bool, typer.Option("--reset-state", help="Begin with fresh private state if the server's version is lost.")
    ] = False,
    insecure: Insecure = False,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="With --insecure: the client's name.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    if context.invoked_subcommand is not None:
        return
    from fedge.cli.network import refuse_windows

    refuse_windows()
    from fedge.net.allow import AllowedParts
    from fedge.net.client_options import ClientOptions
    from fedge.net.policy import read_policies

    given = {"--server": server, "--data": data, "--state": state}
    if missing := [option for option, value in given.items() if value is None]:
        raise ConfigError(f"fedge client: expected {', '.join(missing)}; `fedge client --help` explains them")
    assert server is not None
    assert data is not None
    assert state is not None
    options = ClientOptions(
        _server(server, insecure),
        _credentials(cert, insecure),
        _name(name, insecure),
        data,
        state,
        read_policies(policy or ()),
        AllowedParts(allow or ()),
        threads,
        _proxy(proxy),
        reset_state,
    )
    _join(options, quiet)


def _join(options: ClientOptions, quiet: bool) -> None:
    from fedge.cli.client_view import watching_client
    from fedge.cli.network import ending_in_order
    from fedge.experiment.joining import join

    with ending_in_order("takes part again"), watching_client(options.server, quiet) as view:
        join(options, view)


def _server(text: str, insecure: bool) -> str:
    from fedge.net.address import read_address, resolve_loopback

    address = read_address(text, "--server")
    return str(resolve_loopback(address, "--server") if insecure else address)


def _credentials(cert: Path | None, insecure: bool) -> Path | None:
    if insecure and cert is not None:
        raise ConfigError("--cert and --insecure exclude each other; drop one of them")
    if not insecure and cert is None:
        raise ConfigError(
            "fedge client: expected --cert, the directory with this client's key and certificate; `fedge client "
            "request` makes the key, and with a server on this machine --insecure does without"
        )
    return cert


def _name(name: str | None, insecure: bool) -> str | None:
    import msgspec

    from fedge.net.protocol import Name

    if not insecure and name is not None:
        raise ConfigError("--name: the certificate in --cert has the client's name; drop --name")
    if insecure and name is None:
        raise ConfigError("--insecure: expected --name, since there is no certificate that has the client's name")
    try:
        return msgspec.convert(name, Name | None)
    except msgspec.ValidationError:
        raise ConfigError(
            f"--name: expected up to 64 letters, digits, dots, dashes and underscores, the first a letter or a digit; "
            f"got {name!r}"
        ) from None


def _proxy(url: str | None) -> str | None:
    from urllib.parse import urlsplit

    if url is None:
        return None
    try:
        parts = urlsplit(url)
        well_formed = parts.scheme == "http" and parts.hostname and parts.port
    except ValueError:
        well_formed = False
    if not well_formed:
        raise ConfigError(f"--proxy: expected http://HOST:PORT, got {url!r}")
    return url
