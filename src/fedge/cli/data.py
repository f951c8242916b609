"""`fedge data`"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedge.cli.data_files import check, get
from fedge.cli.data_split import split
from fedge.cli.parameters import Changes, Format, complete_experiment

if TYPE_CHECKING:
    from rich.table import Table

    from fedge.data.client_sizes import ClientSize
    from fedge.data.clients import Clients

NUM_SHOWN = 20
_MOST_CLASSES = 3

app = typer.Typer(
    no_args_is_help=True,
    help="""Download, check, inspect and split data sets.

    Files are searched in --dir or data.dir, then in the directory named by the
    environment variable FEDGE_DATA, then in the user's cache directory.

    Examples:

      fedge data get mnist
      fedge data check mnist
      fedge data show first.toml --chart division.svg
      fedge data split first.toml -o parts
    """,
)


@app.command("show")
def show(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="An experiment file.", autocompletion=complete_experiment)
    ],
    changes: Changes = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Number of clients in the table; 0 for all.")
    ] = NUM_SHOWN,
    round: Annotated[int, typer.Option("--round", metavar="R", min=1, help="The round to show, if data drifts.")] = 1,
    chart: Annotated[
        Path | None,
        typer.Option(
            "--chart",
            metavar="FILE",
            help="Save a chart of classes and sizes as .svg, .png, .pdf or .html; needs fedge\\[view].",
        ),
    ] = None,
    format: Format = "text",
) -> None:
    """Show how an experiment's data is partitioned across its clients.

    Lists each client's numbers of training and test samples and its most
    frequent classes, for the experiment's first seed.

    Examples:

      fedge data show first.toml
      fedge data show first.toml --set data.partition.name=dirichlet --chart division.svg
      fedge data show first.toml --set data.drift.name=arriving --set data.drift.until=50 --round 10
    """
    from fedge.cli.output import say, say_json
    from fedge.config import load
    from fedge.data.client_sizes import evenly, measure
    from fedge.report.style import check_saving, save

    if chart is not None:
        check_saving(chart)
    config = load(file, changes or ())
    options: Any = config.data
    clients: Clients = options.build(config.first_seed)
    num_clients = len(clients.sizes)
    sizes = [clients.num_samples(client, round) for client in range(num_clients)]
    shown = list(measure(clients, range(min(limit or num_clients, num_clients)), round))
    if chart is not None:
        from fedge.report.class_distribution import MOST_CLIENTS, class_distribution

        drawn = {client.client: client.classes for client in measure(clients, evenly(num_clients, MOST_CLIENTS), round)}
        save(class_distribution(drawn, sizes, clients.num_outputs, *_names(clients)), chart)
    totals = _totals(clients, sizes)
    if format == "json":
        class_names, client_names = _names(clients)
        say_json(
            totals
            | {"class_names": class_names, "client_names": client_names}
            | {"shown": [client._asdict() for client in shown]}
        )
    else:
        say(_table(shown, *_names(clients)), "", _line(totals))


app.command("get")(get)
app.command("check")(check)
app.command("split")(split)


def _names(clients: Clients) -> tuple[Sequence[str], Sequence[str]]:
    """Return the names of classes and of clients; empty where the data has none."""
    return getattr(clients, "shown_classes", ()), getattr(clients, "names", ())


def _totals(clients: Clients, sizes: Sequence[int]) -> dict[str, Any]:
    return {
        "clients": len(sizes),
        "samples": sum(sizes),
        "smallest": min(sizes),
        "median": float(median(sizes)),
        "largest": max(sizes),
        "shape": clients.shape,
        "outputs": clients.num_outputs,
    }


def _line(totals: dict[str, Any]) -> str:
    shape = "x".join(map(str, totals["shape"]))
    return (
        f"{totals['clients']:,} clients, {totals['samples']:,} training samples of shape {shape}; "
        f"{totals['smallest']:,} to {totals['largest']:,} per client, median {totals['median']:g}"
    )


def _table(clients: Sequence[ClientSize], class_names: Sequence[str], client_names: Sequence[str]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("client", "train", "test", "classes"):
        shown.add_column(title, justify="right")
    shown.add_column("most frequent")
    for client in clients:
        ranked = sorted(enumerate(client.classes or ()), key=lambda pair: -pair[1])
        held = [(label, count) for label, count in ranked if count]
        most = ", ".join(
            f"{class_names[label] if class_names else label}: {count / client.train:.0%}"
            for label, count in held[:_MOST_CLASSES]
        )
        classes = "–" if client.classes is None else str(len(held))
        name = client_names[client.client] if client_names else str(client.client)
        shown.add_row(Text(name), str(client.train), str(client.test), classes, Text(most or "–"))
    return shown
