"""`fedge plot`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedge.cli.parameters import RunPaths, complete_metric
from fedge.core.chart_kinds import MAX_CURVES, ChartKind, ChartWidth, LegendPlace, LogAxes


def plot(
    paths: RunPaths,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File for the chart: .svg, .png, .pdf or .html.")
    ],
    kind: Annotated[
        ChartKind,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="curves, bars, pareto, parallel, pairs, importance, heatmap, users, breakdown, grid, timeline, "
            "latency or throughput: see above.",
        ),
    ] = "curves",
    x: Annotated[
        str | None,
        typer.Option(
            "--x",
            metavar="FIELD",
            help="For curves: round, or a cost accumulated over rounds, such as bytes_up or sim_seconds. "
            "For a Pareto chart: a result.",
        ),
    ] = None,
    y: Annotated[
        str | None,
        typer.Option(
            "--y",
            metavar="FIELD",
            help="For curves: a metric of a round. For other charts: a result, such as accuracy or rounds_to_target.",
            autocompletion=complete_metric,
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="KEY",
            help="Merge the runs that share a value of this setting, such as algorithm.name; may be repeated. "
            "For a heat map: its two settings.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="NAME",
            help="For pairs: the group, experiment or algorithm to compare others with, or KEY=VALUE.",
        ),
    ] = None,
    rounds: Annotated[
        list[int] | None,
        typer.Option(
            "--round",
            metavar="N",
            help="For a grid or a timeline: the round; default: the last. For a grid it may be repeated.",
        ),
    ] = None,
    top: Annotated[
        int,
        typer.Option(
            "--top",
            metavar="N",
            min=1,
            help="Draw at most N curves, the best by their last value; more than 8 become small multiples.",
        ),
    ] = MAX_CURVES,
    seeds: Annotated[bool, typer.Option("--seeds", help="Draw each seed as a thin line inside the band.")] = False,
    no_band: Annotated[
        bool, typer.Option("--no-band", help="Draw no band around the mean; with --seeds, draw only the thin lines.")
    ] = False,
    width: Annotated[
        ChartWidth,
        typer.Option(
            "--width",
            metavar="single|double",
            help="single: one column of a paper, 3.5 in; double: both columns, 7.16 in.",
        ),
    ] = "single",
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="A title above the chart.")] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            metavar="KEY=TEXT",
            help="Rename an axis (x, y), a field, a setting, a value or a curve: accuracy='test accuracy', "
            "local_steps=steps, fedavg=baseline; may be repeated.",
        ),
    ] = None,
    log: Annotated[LogAxes | None, typer.Option("--log", metavar="x|y|both", help="Make axes logarithmic.")] = None,
    legend: Annotated[
        LegendPlace,
        typer.Option("--legend", metavar="PLACE", help="bottom, right, inside or none."),
    ] = "bottom",
) -> None:
    """Draw runs as a chart for print; needs fedge\\[view].

    `curves` shows a metric over rounds or over an accumulated cost, with a band
    over seeds. `bars` shows a result, such as the cost to the target, or "not
    reached". `pareto` shows two results and the groups of runs that no other
    beats in both. `parallel` shows a line for each group through its settings
    and results. `pairs` shows differences from a baseline, seed by seed.
    `importance` shows how much of a result's variance each setting explains.
    `heatmap` shows a result over two varied settings. `users` shows the
    distribution of user accuracy over clients at the end of runs. `breakdown`
    shows the parts of one run's bytes or edge time over rounds. `throughput`
    shows bytes per second of a `fedge server` run in its last hour of events.

    Three charts need runs with `edge.record = true`. `grid` shows one run's
    cells, with the clients and classes in each; a .html page has a slider over
    the rounds. `timeline` shows the phases of each client in one round.
    `latency` shows the distribution of the times of cells and clients over all
    rounds.

    Examples:

      fedge plot runs --x bytes_up --y accuracy --by algorithm.name -o fig.svg
      fedge plot runs --top 4 --seeds --no-band --label fedavg=baseline -o best.pdf
      fedge plot runs --top 18 --width double --title 'All settings' -o all.pdf
      fedge plot runs --kind bars --y rounds_to_target -o bars.pdf
      fedge plot runs --kind pareto --x bytes_to_target --y accuracy -o pareto.png
      fedge plot runs --kind heatmap --by algorithm.learning_rate --by algorithm.local_steps -o map.html
      fedge plot runs --kind parallel --y rounds_to_target -o parallel.svg
      fedge plot runs --kind pairs --y accuracy --baseline fedavg -o pairs.svg
      fedge plot runs --kind users --by algorithm.name -o users.svg
      fedge plot runs/first --kind grid -o grid.html
      fedge plot runs/first --kind grid --round 1 --round 10 -o grid.svg
      fedge plot runs/first --kind timeline --round 3 -o timeline.svg
      fedge plot runs --kind latency --by selection.count -o latency.pdf
      fedge plot runs/served --kind throughput -o throughput.svg
    """
    from fedge.cli.output import say, warn, working
    from fedge.report.chart_options import ChartOptions
    from fedge.report.chart_request import ChartRequest, draw
    from fedge.report.collect import collect
    from fedge.report.edge_records import read_edge
    from fedge.report.labels import parse_labels
    from fedge.report.style import check_saving, save

    options = ChartOptions(width, title, parse_labels(labels or ()), log, legend, seeds, top, not no_band)
    stepped = output.suffix == ".html"
    request = ChartRequest(kind, x, y, by or (), rounds or (), stepped, baseline, options)
    request.check("--")
    check_saving(output)
    with working("reading runs"):
        runs, problems = collect(paths, read_edge if kind == "latency" else None)
    for problem in problems:
        warn(problem)
    with working("drawing"):
        save(draw(request, runs), output)
    say(f"chart: {output}")
