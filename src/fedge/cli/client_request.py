"""`fedge client request`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedge.cli.parameters import Format


def request(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The client's permanent name.")],
    cert: Annotated[
        Path, typer.Option("--cert", metavar="DIR", help="Directory for the key and the certificate.")
    ] = Path("cert"),
    format: Format = "text",
) -> None:
    """Create a client's private key and a certificate request.

    The key stays in the directory. Send the request, NAME.csr, to the server's operator, who
    signs it with `fedge pki sign` and returns NAME.crt. Put NAME.crt into the directory.
    Running the command again changes nothing. To renew a certificate, send the same request again.

    Examples:

      fedge client request clinic-3
      fedge client request clinic-3 --cert /var/lib/fedge/cert --format json
    """
    from fedge.cli.output import say, say_json, warn
    from fedge.core.errors import NetworkError
    from fedge.net.identity import load_client, request_certificate

    files = request_certificate(cert, name)
    identity = None
    if files.certificate.exists():
        try:
            identity = load_client(cert)
        except NetworkError as error:
            warn(str(error))
    if format == "json":
        until, authority = (identity.expires, identity.ca_fingerprint) if identity else (None, None)
        paths = {key: str(value) for key, value in files._asdict().items()}
        say_json(paths | {"valid_until": until, "authority": authority})
        return
    say(f"key of {name}: {files.key}; keep it secret and on this machine", f"  fingerprint {files.key_fingerprint}")
    if identity:
        say(
            f"certificate of {name}: {files.certificate}, valid until {identity.expires:%Y-%m-%d}",
            f"  authority   {identity.ca_fingerprint}",
            "To renew it:",
        )
    say(
        f"1. Send {files.request} to the server's operator, who runs: fedge pki sign {files.request.name}",
        f"2. Put the returned {files.certificate.name} into {cert}.",
    )
