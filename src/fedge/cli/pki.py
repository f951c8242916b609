"""`fedge pki`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedge.cli.parameters import Format

app = typer.Typer(
    no_args_is_help=True,
    help="""Issue the certificates with which server and clients know each other.

    The server's operator has a small authority in a directory. Each client makes its own key
    and sends a request; the signed certificate goes back. Needs fedge\\[net].

    Examples:

      fedge pki init --host fl.example.org
      fedge client request clinic-3 --cert cert
      fedge pki sign clinic-3.csr
      fedge pki list
    """,
)

Pki = Annotated[Path, typer.Option("--pki", metavar="DIR", help="The authority's directory.")]


@app.command("init")
def init(
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME",
            help="A name or address by which clients reach the server; may be repeated. "
            "Otherwise host name and addresses of this machine, or those of the certificate to renew.",
        ),
    ] = None,
    pki: Pki = Path("pki"),
    format: Format = "text",
) -> None:
    """Make an authority and the server's certificate, or renew the latter.

    The authority is valid for ten years, the server's certificate for one. If the directory
    has an authority, it stays as it is, and so do all clients: only the server's certificate
    is made anew. localhost is always among its names.

    Examples:

      fedge pki init
      fedge pki init --host fl.example.org --host 203.0.113.7
      fedge pki init --pki /etc/fedge/pki --format json
    """
    from fedge.cli.output import say, say_json
    from fedge.net.pki import init

    done = init(pki, host or ())
    if format == "json":
        say_json({"pki": str(pki), **done._asdict()})
        return
    made = f"made the authority in {pki}" if done.created else f"kept the authority in {pki}"
    say(
        f"{made}, valid until {done.authority_expires:%Y-%m-%d}",
        f"  fingerprint {done.authority}",
        f"{'made' if done.created else 'renewed'} the server's certificate, valid until {done.server_expires:%Y-%m-%d}",
        f"  for {', '.join(done.hosts)}",
    )
    if done.created:
        say(
            f"{pki / 'ca.key'} is secret: whoever has it can sign certificates. Back up {pki}.",
            "Next, on each client: fedge client request NAME; then here: fedge pki sign NAME.csr",
        )
    else:
        say("A running server shows the new certificate to the next client that connects.")


@app.command("sign")
def sign(
    request: Annotated[Path, typer.Argument(metavar="REQUEST", help="The file that `fedge client request` wrote.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write the certificate; else beside the request."),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="The client has a new key: revoke its certificates for the old one."),
    ] = False,
    pki: Pki = Path("pki"),
    format: Format = "text",
) -> None:
    """Issue the certificate that a client asks for, or renew it.

    It is valid for one year. Signing the same request again renews it: the client keeps its
    name, and so its number in every run. Neither the server nor other clients are touched.
    The file that is written goes into the client's directory, and is no secret.

    Examples:

      fedge pki sign clinic-3.csr
      fedge pki sign requests/clinic-3.csr -o certificates/clinic-3.crt
      fedge pki sign clinic-3.csr --replace
    """
    from fedge.cli.output import say, say_json
    from fedge.net.pki import sign

    done = sign(pki, request, output, replace=replace)
    if format == "json":
        say_json(
            {"name": done.record.name, "path": str(done.path), "renewed": done.renewed, "replaced": done.replaced}
            | {"fingerprint": done.record.fingerprint, "key": done.record.key}
            | {"valid_until": done.record.valid_until, "authority": done.authority}
        )
        return
    say(
        f"{'renewed' if done.renewed else 'issued'} the certificate of {done.record.name}, "
        f"valid until {done.record.valid_until:%Y-%m-%d}: {done.path}",
        f"  key         {done.record.key}",
        f"  authority   {done.authority}",
    )
    if done.replaced:
        say(f"revoked {done.replaced} of its certificates, which were for another key")
    if not done.path.with_name(f"{done.record.name}.key").exists():
        say(f"Send {done.path.name} to the client, into the directory that has {done.record.name}.key.")


@app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The client's name.")],
    pki: Pki = Path("pki"),
    format: Format = "text",
) -> None:
    """Revoke all certificates that were issued to a client so far.

    A running server refuses the client from then on, without a restart. To let it in again,
    sign a request with a new key; the revoked key stays refused.

    Examples:

      fedge pki revoke clinic-3
    """
    from fedge.cli.output import say, say_json
    from fedge.net.pki import revoke

    done = revoke(pki, name)
    if format == "json":
        say_json({"name": name, "revoked": [each.fingerprint for each in done]})
    elif done:
        say(f"revoked {len(done)} certificate{'s' * (len(done) != 1)} of {name}")
    else:
        say(f"all certificates of {name} were revoked before")


@app.command("list")
def list_certificates(
    all: Annotated[bool, typer.Option("--all", help="Every certificate of a client, not only its newest.")] = False,
    pki: Pki = Path("pki"),
    format: Format = "text",
) -> None:
    """List the certificates of the authority, the server and the clients.

    A certificate is valid, expires soon (within 30 days), expired or revoked.

    Examples:

      fedge pki list
      fedge pki list --all --format json
    """
    from fedge.cli.output import say, say_json, warn
    from fedge.net.pki import list_certificates

    found = list_certificates(pki, all)
    if format == "json":
        say_json([each._asdict() for each in found])
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    styles = {"valid": "green", "expires soon": "yellow", "expired": "red", "revoked": "red"}
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("name", "role", "state", "valid until", "fingerprint", "hosts"):
        table.add_column(title)
    for each in found:
        state = Text(each.state, styles[each.state])
        until = f"{each.valid_until:%Y-%m-%d}"
        table.add_row(each.name, each.role, state, until, each.fingerprint[:16], ", ".join(each.hosts))
    say(table)
    soon = [each.name for each in found if each.state in ("expires soon", "expired")]
    if soon:
        warn(f"{', '.join(soon)}: expired, or expires within 30 days; docs/certificates.md tells how to renew")
