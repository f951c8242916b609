"""`fedge pki`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedge.cli.parameters import Format

app = typer.Typer(
    no_args_is_help=True,
    help="""Issue the certificates that authenticate server and clients to each other.

    The server's operator keeps a small certificate authority (CA) in a directory. Each client
    creates its own key and sends a certificate request; the operator signs it and returns the
    certificate. Needs fedge\\[net].

    Examples:

      fedge pki init --host fl.example.org
      fedge client request clinic-3 --cert cert
      fedge pki sign clinic-3.csr
      fedge pki list
    """,
)

Pki = Annotated[Path, typer.Option("--pki", metavar="DIR", help="Directory of the certificate authority.")]


@app.command("init")
def init(
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME",
            help="Host name or address at which clients reach the server; may be repeated. "
            "Default: those of the certificate to renew, or of this machine.",
        ),
    ] = None,
    pki: Pki = Path("pki"),
    format: Format = "text",
) -> None:
    """Create a certificate authority and the server's certificate, or renew the latter.

    The authority is valid for ten years, the server's certificate for one. If the directory
    already has an authority, only the server's certificate is renewed; the authority and the
    clients' certificates stay valid. The server's certificate always includes localhost.

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
    verb, server_verb = ("created", "created") if done.created else ("kept", "renewed")
    say(
        f"{verb} the authority in {pki}, valid until {done.authority_expires:%Y-%m-%d}",
        f"  fingerprint {done.authority}",
        f"{server_verb} the server's certificate, valid until {done.server_expires:%Y-%m-%d}",
        f"  for {', '.join(done.hosts)}",
    )
    if done.created:
        say(
            f"Keep {pki / 'ca.key'} secret: it can sign certificates. Back up {pki}.",
            "Next, on each client: fedge client request NAME; then here: fedge pki sign NAME.csr",
        )
    else:
        say("A running server uses the new certificate for new connections; no restart is needed.")


@app.command("sign")
def sign(
    request: Annotated[Path, typer.Argument(metavar="REQUEST", help="The file that `fedge client request` wrote.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File for the certificate; default: next to the request."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Accept a new key, and revoke the certificates of the old one.")
    ] = False,
    pki: Pki = Path("pki"),
    format: Format = "text",
) -> None:
    """Sign a client's certificate request, or renew its certificate.

    The certificate is valid for one year. To renew it, sign the same request again: the client
    keeps its name, and therefore its number in every run. The server and other clients are not
    affected. Put the certificate, which is not secret, into the client's directory.

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
        say(f"revoked {done.replaced} of its certificates, issued for another key")
    if not done.path.with_name(f"{done.record.name}.key").exists():
        say(f"Send {done.path.name} to the client, who puts it next to {done.record.name}.key.")


@app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The client's name.")],
    pki: Pki = Path("pki"),
    format: Format = "text",
) -> None:
    """Revoke all certificates issued to a client so far.

    A running server refuses the client from then on, without a restart. To admit the client
    again, sign a request with a new key; revoked keys stay refused.

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
        say(f"all certificates of {name} were already revoked")


@app.command("list")
def list_certificates(
    all: Annotated[bool, typer.Option("--all", help="List all certificates, not only each client's newest.")] = False,
    pki: Pki = Path("pki"),
    format: Format = "text",
) -> None:
    """List the certificates of the authority, the server and the clients.

    The state is one of: valid, expires soon (within 30 days), expired, revoked.

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
        warn(f"{', '.join(soon)}: expired, or expires within 30 days; to renew, see docs/certificates.md")
