"""`fedge costs`"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedge.cli.parameters import Changes, ExperimentFile, Format
from fedge.core.fields import COSTS, describe, fitting, titled

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from fedge.core.layout import Layout
    from fedge.costs import Alternative
    from fedge.experiment.setup import Setup

_ROWS = ("bytes_down", "bytes_up", "local_steps", "flops", "sim_seconds")
_VECTORS = {"vectors_down": "x\ndown", "vectors_up": "x\nup", "memory": "x\nheld", "kept": "x\nkept"}


def costs(
    file: ExperimentFile,
    changes: Changes = None,
    chart: Annotated[
        Path | None,
        typer.Option(
            "--chart",
            metavar="FILE",
            help="Save a chart of the upload's compression ratio over sparsity as .svg, .png, .pdf or .html; "
            "needs fedge\\[view].",
        ),
    ] = None,
    format: Format = "text",
) -> None:
    """Estimate the costs of an experiment, and of other algorithms, without training.

    Costs per client are means over the first round's cohort with the first
    seed. The x columns count vectors as large as the model: those that a client
    downloads, uploads, holds in memory while training, and keeps between
    rounds. The ratio is the compression ratio of the upload.

    Examples:

      fedge costs first.toml
      fedge costs first.toml --set model.name=mnist_cnn --set algorithm.local_steps=10
      fedge costs first.toml --format json | jq .total.bytes_up
      fedge costs first.toml --chart compression.svg
    """
    from fedge.cli.output import say, say_json
    from fedge.config import load
    from fedge.experiment.setup import Setup
    from fedge.report.style import check_saving

    if chart is not None:
        check_saving(chart)
    config: Any = load(file, changes or ())
    setup = Setup.of(config, config.first_seed)
    found = _forecast(setup)
    if chart is not None:
        _draw(setup.network.layout, chart)
    if format == "json":
        say_json(found | {"alternatives": [_flat(alternative) for alternative in found["alternatives"]]})
    else:
        say(*_page(found))


def _draw(layout: Layout, path: Path) -> None:
    from fedge.costs.compression_ratios import ratios
    from fedge.report.compression import compression
    from fedge.report.style import save

    found = list(ratios(layout))
    smaller = {"FedAvg": [ratio.fedavg for ratio in found], "CE-FedAvg": [ratio.ce_fedavg for ratio in found]}
    save(compression([ratio.sparsity for ratio in found], [ratio.bits_per_place for ratio in found], smaller), path)


def _forecast(setup: Setup) -> dict[str, Any]:
    """Return the costs of the experiment and of its alternatives, as `--format json` prints them."""
    from fedge.config import plain
    from fedge.costs import Forecast, alternatives
    from fedge.report.edge_rates import edge_rates

    config, forecast = setup.config, Forecast(setup)
    records = list(forecast.rounds())
    layout, num_clients = setup.network.layout, len(setup.registered.sizes)
    return {
        "name": config.name,
        "model": {
            "parameters": layout.num_params,
            "tensors": len(layout.params),
            "statistics": layout.num_stats,
            "flops_per_sample": setup.flops_per_sample,
        },
        "clients": num_clients,
        "cohort": config.selection.number(num_clients),
        "client": forecast.quote()._asdict(),
        "round": {name: records[0][name] for name in COSTS},
        "total": {"rounds": len(records)} | {name: sum(record[name] for record in records) for name in COSTS},
        "notes": list(forecast.notes()),
        "edge_rates": edge_rates(plain(config)),
        "alternatives": list(alternatives(setup)),
    }


def _flat(alternative: Alternative) -> dict[str, Any]:
    who = {name: value for name, value in alternative._asdict().items() if name != "quote"}
    return who | alternative.quote._asdict()


def _page(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    model = found["model"]
    statistics = f" and {model['statistics']:,} statistics" if model["statistics"] else ""
    yield (
        f"{found['name']}: {model['parameters']:,} parameters in {model['tensors']} tensors{statistics}, "
        f"{model['flops_per_sample']:,} FLOPs per sample gradient; "
        f"{found['cohort']:,} of {found['clients']:,} clients per round"
    )
    yield ""
    yield _totals(found)
    yield from (f"note: {note}" for note in found["notes"])
    yield f"edge time: {found['edge_rates']}"
    yield ""
    yield "per client in the first round, as configured (>) and for alternatives:"
    yield ""
    yield _alternatives(found["alternatives"])


def _totals(found: Mapping[str, Any]) -> Table:
    shown = _table("", "per client", "per round", f"{found['total']['rounds']:,} rounds")
    for name in _ROWS:
        amounts = [found[whose][name] for whose in ("client", "round", "total")]
        shown.add_row(describe(name).title, *(describe(name).write(amount) for amount in amounts))
    return shown


def _alternatives(found: Sequence[Alternative]) -> Table:
    from rich.text import Text

    units = {
        name: fitting(describe(name).units, max(getattr(a.quote, name) for a in found))
        for name in _ROWS
        if name != "local_steps"
    }
    columns = [titled(describe(name).title, unit).replace(" ", "\n", 1) for name, unit in units.items()]
    shown = _table("", "algorithm", *_VECTORS.values(), *columns, "ratio")
    shown.padding = (0, 0)  # fits 80 columns, with long names wrapped
    names = shown.columns[1]
    names.justify, names.no_wrap, names.overflow = "left", False, "fold"
    for alternative in found:
        quote = alternative.quote
        shown.add_row(
            ">" if alternative.configured else "",
            Text(": ".join(filter(None, (alternative.algorithm, alternative.codec)))),
            *(f"{getattr(quote, name):.3g}" for name in _VECTORS),
            *(f"{getattr(quote, name) / unit.size:.3g}" for name, unit in units.items()),
            f"{quote.compression:.3g}",
        )
    return shown


def _table(*titles: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in titles:
        shown.add_column(title, justify="right" if title else "left", no_wrap=True)
    return shown
