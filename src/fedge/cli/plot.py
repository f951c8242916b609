"""`fedge plot`"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from fedge.cli.parameters import complete_metric, complete_run
from fedge.core.errors import ConfigError

if TYPE_CHECKING:
    from fedge.report.groups import Group

Kind = Literal["curves", "bars", "pareto", "heatmap", "users"]


def plot(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Runs, or folders of runs.", autocompletion=complete_run),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where the chart goes: .svg, .png, .pdf or .html.")
    ],
    kind: Annotated[
        Kind, typer.Option("--kind", metavar="curves|bars|pareto|heatmap|users", help="What is drawn, as said above.")
    ] = "curves",
    x: Annotated[
        str | None,
        typer.Option(
            "--x",
            metavar="FIELD",
            help="Of curves: round, bytes_up, bytes_down, local_steps, flops, sim_seconds or energy_j. "
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
) -> None:
    """Draw runs as a chart, fit for print; needs fedge\\[view].

    curves shows a metric over rounds or over a cost paid so far, with the band
    of its seeds. bars shows a result, such as the cost to the target, with "not
    reached" where it was not. pareto shows two results and the settings that
    none beats in both. heatmap shows a result over two settings that vary.
    users shows how user accuracy is spread over clients at the end of runs.

    Examples:

      fedge plot runs --x bytes_up --y accuracy --by algorithm.name -o fig.svg
      fedge plot runs --kind bars --y rounds_to_target -o bars.pdf
      fedge plot runs --kind pareto --x bytes_to_target --y accuracy -o pareto.png
      fedge plot runs --kind heatmap --by algorithm.learning_rate --by algorithm.local_steps -o map.html
      fedge plot runs --kind users --by algorithm.name -o users.svg
    """
    from fedge.cli.output import say, warn
    from fedge.report.collect import collect
    from fedge.report.groups import group_runs, regroup
    from fedge.report.style import check_saving, save

    check_saving(output)
    runs, problems = collect(paths)
    for problem in problems:
        warn(problem)
    groups = group_runs(runs)
    merged = regroup(groups, by) if by else groups
    save(_heatmap(groups, y, by) if kind == "heatmap" else _chart(kind, merged, x, y), output)
    say(f"chart: {output}")


def _chart(kind: Kind, groups: Sequence[Group], x: str | None, y: str | None) -> Any:
    from fedge.report.charts import curves
    from fedge.report.overviews import bars, pareto
    from fedge.report.users import users

    if kind == "curves":
        return curves(groups, cast(Any, x or "round"), y or "accuracy")
    if kind == "pareto":
        return pareto(groups, x or "bytes_to_target", y or "flops_to_target")
    if kind == "users":
        if x is not None or y is not None:
            raise ConfigError(f"{f'--x {x}' if x else f'--y {y}'}: users has user accuracy alone; leave --x, --y away")
        return users(groups)
    if x is not None:
        raise ConfigError(f"--x {x}: bars have one field, --y; leave --x away")
    return bars(groups, y or "rounds_to_target")


def _heatmap(groups: Sequence[Group], y: str | None, by: Sequence[str] | None) -> Any:
    from fedge.report.overviews import heatmap

    if by and len(by) != 2:
        raise ConfigError(f"--by: a heat map has two settings, got {len(by)}; give --by twice")
    return heatmap(groups, y or "accuracy", (by[0], by[1]) if by else None)
