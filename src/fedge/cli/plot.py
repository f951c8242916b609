"""`fedge plot`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedge.cli.parameters import complete_metric, complete_run
from fedge.core.chart_kinds import ChartKind


def plot(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Runs, or folders of runs.", autocompletion=complete_run),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where the chart goes: .svg, .png, .pdf or .html.")
    ],
    kind: Annotated[
        ChartKind,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="curves, bars, pareto, heatmap, users, grid, timeline or latency, as said above.",
        ),
    ] = "curves",
    x: Annotated[
        str | None,
        typer.Option(
            "--x",
            metavar="FIELD",
            help="Of curves: round, or what has been paid so far, such as bytes_up or sim_seconds. "
            "Of a Pareto chart: a result.",
        ),
    ] = None,
    y: Annotated[
        str | None,
        typer.Option(
            "--y",
            metavar="FIELD",
            help="Of curves: what a round measured. Of all else: a result, such as accuracy or rounds_to_target.",
            autocompletion=complete_metric,
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="KEY",
            help="Draw runs with one value of this setting as one, such as algorithm.name; may be repeated. "
            "Of a heat map: its two settings.",
        ),
    ] = None,
    rounds: Annotated[
        list[int] | None,
        typer.Option(
            "--round",
            metavar="N",
            help="Of a grid or a timeline: the round, else the last. Of a grid it may be repeated.",
        ),
    ] = None,
) -> None:
    """Draw runs as a chart, fit for print; needs fedge\\[view].

    curves shows a metric over rounds or over a cost paid so far, with the band
    of its seeds. bars shows a result, such as the cost to the target, with "not
    reached" where it was not. pareto shows two results and the settings that
    none beats in both. heatmap shows a result over two settings that vary.
    users shows how user accuracy is spread over clients at the end of runs.

    Three show the edge of runs with edge.record = true. grid shows one run's
    cells, with the clients and the classes in each; a .html page steps through
    the rounds. timeline shows what each client did in one round, and when.
    latency shows how the times of cells and clients are spread over all rounds.

    Examples:

      fedge plot runs --x bytes_up --y accuracy --by algorithm.name -o fig.svg
      fedge plot runs --kind bars --y rounds_to_target -o bars.pdf
      fedge plot runs --kind pareto --x bytes_to_target --y accuracy -o pareto.png
      fedge plot runs --kind heatmap --by algorithm.learning_rate --by algorithm.local_steps -o map.html
      fedge plot runs --kind users --by algorithm.name -o users.svg
      fedge plot runs/first --kind grid -o grid.html
      fedge plot runs/first --kind grid --round 1 --round 10 -o grid.svg
      fedge plot runs/first --kind timeline --round 3 -o timeline.svg
      fedge plot runs --kind latency --by selection.count -o latency.pdf
    """
    from fedge.cli.output import say, warn
    from fedge.report.collect import collect
    from fedge.report.drawing import Wish, draw
    from fedge.report.edge import read_edge
    from fedge.report.style import check_saving, save

    wish = Wish(kind, x, y, by or [], rounds or [], stepped=output.suffix == ".html")
    wish.check("--")
    check_saving(output)
    runs, problems = collect(paths, read_edge if kind == "latency" else None)
    for problem in problems:
        warn(problem)
    save(draw(wish, runs), output)
    say(f"chart: {output}")
