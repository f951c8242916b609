"""`fedge client`"""

import typer

from fedge.cli import client_request

app = typer.Typer(
    no_args_is_help=True,
    help="""Take part in training on a server, and get the certificate for it.

    Examples:

      fedge client request clinic-3
    """,
)
app.command("request")(client_request.request)
