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
    help="""Join a training run on a server, or request a certificate for it.

    The client stays connected until the run is complete. When the server asks
    and the policy allows, it trains on its own data and sends model updates,
    never data. While the server cannot be reached, it keeps retrying. If the
    client is killed, run the same command again to continue.

    Examples:

      fedge client --server a.org:8443 --cert cert --data my-data --state state
      fedge client --server a.org:8443 --cert cert --data my.py:load --state s --policy ac
      fedge client --server localhost:8443 --insecure --name a --data first.toml#0 --state a
      fedge client request clinic-3
    """,
)
app.command("request")(client_request.request)


Server = Annotated[str | None, typer.Option("--server", metavar="HOST:PORT", help="The server's address.")]
Cert = Annotated[
    Path | None,
    typer.Option("--cert", metavar="DIR", help="Directory with key and certificate; see fedge client request."),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="SPEC",
        help="The client's samples: a folder written by fedge data split, a data file, my.py:load, or "
        "first.toml#3 for client 3 of an experiment.",
    ),
]
State = Annotated[
    Path | None,
    typer.Option("--state", metavar="DIR", help="Directory for this client's private state; one per client."),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="WHEN",
        help="When to accept work: always, hours=22-6, load=0.5 (load average per core), ac, unmetered, or "
        "my.py:decide. If repeated, all policies must agree.",
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="FILE",
        help="Local code or weights that the server may use, matched by content: FILE, FILE.py:NAME or an "
        "installed package. May be repeated.",
    ),
]
Threads = Annotated[
    int | None, typer.Option("--threads", metavar="N", min=1, help="Threads for training; default: all cores.")
]
Proxy = Annotated[str | None, typer.Option("--proxy", metavar="URL", help="HTTP proxy to reach the server through.")]
ResetState = Annotated[
    bool, typer.Option("--reset-state", help="Start from fresh private state if the expected state is lost.")
]
ClientName = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="The client's name; only with --insecure.")
]


@app.callback(invoke_without_command=True)
def client(
    context: typer.Context,
    server: Server = None,
    cert: Cert = None,
    data: Data = None,
    state: State = None,
    policy: Policies = None,
    allow: Allow = None,
    threads: Threads = None,
    proxy: Proxy = None,
    reset_state: ResetState = False,
    insecure: Insecure = False,
    name: ClientName = None,
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
        raise ConfigError(f"fedge client: missing {', '.join(missing)}; see `fedge client --help`")
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
    from fedge.experiment.networked_client import join

    with ending_in_order("reconnect"), watching_client(options.server, quiet) as view:
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
            "fedge client: missing --cert, the directory with this client's key and certificate; create the key with "
            "`fedge client request`, or use --insecure with a server on this machine"
        )
    return cert


def _name(name: str | None, insecure: bool) -> str | None:
    import msgspec

    from fedge.net.protocol import Name

    if not insecure and name is not None:
        raise ConfigError("--name: the client's name is in its certificate; drop --name")
    if insecure and name is None:
        raise ConfigError("--insecure: missing --name, since no certificate names the client")
    try:
        return msgspec.convert(name, Name | None)
    except msgspec.ValidationError:
        raise ConfigError(
            f"--name: expected up to 64 letters, digits, dots, dashes and underscores, starting with a letter or a "
            f"digit; got {name!r}"
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
