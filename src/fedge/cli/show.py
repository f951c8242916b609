"""`fedge show`"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedge.cli.parameters import Baseline, Chart, Format, Metric, complete_metric, complete_run
from fedge.core.errors import ConfigError, RunError
from fedge.core.printable import printable

if TYPE_CHECKING:
    from fedge.runs import Run


def show(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Runs, or folders of runs.", autocompletion=complete_run),
    ],
    chart: Chart = None,
    y: Metric = "accuracy",
    baseline: Baseline = None,
    outcome: Annotated[
        str | None,
        typer.Option(
            "--outcome",
            metavar="RESULT",
            help="The result that --baseline, importance and --correlations analyse, such as rounds_to_target; "
            "default: the first in the table.",
            autocompletion=complete_metric,
        ),
    ] = None,
    settings: Annotated[
        Literal["differ", "all"] | None,
        typer.Option(
            "--settings",
            metavar="differ|all",
            help="Also print the settings that differ between groups, or all settings.",
        ),
    ] = None,
    correlations: Annotated[
        bool,
        typer.Option(
            "--correlations",
            help="Also print how settings correlate with the result, and its mean for each of their values.",
        ),
    ] = False,
    format: Format = "text",
) -> None:
    """Show a run's results, or compare several runs.

    A single run is shown with its summary and its last rounds. Several runs, or
    those of a folder, are compared: runs that differ in the seed alone make one
    row, with the mean over seeds and its confidence interval. If two or more
    settings vary, a second table shows the share of a result's variance that
    each of them explains: of --outcome, by default of the first result.

    Examples:

      fedge show runs/first
      fedge show runs/fedavg runs/scaffold --chart compared.png
      fedge show runs --baseline fedavg
      fedge show runs --baseline fedavg --outcome user_accuracy
      fedge show runs --settings differ --correlations
      fedge show runs --y user_accuracy --chart users.svg
      fedge show runs/first --format json | jq .summary
    """
    from fedge.cli.charted import check_charted
    from fedge.cli.comparison import Analyses, save_chart, say_comparison
    from fedge.cli.details import details
    from fedge.cli.output import say, say_json
    from fedge.report.groups import own_fields
    from fedge.report.style import check_saving

    if chart:
        check_saving(chart)
    runs = _readable(paths, needs_rounds=chart is not None)
    if chart:
        check_charted(y, own_fields(runs))
    if len(paths) > 1 or runs[0].path != paths[0] or outcome or settings or correlations:
        say_comparison(runs, format, Analyses(baseline, outcome, settings, correlations))
    elif baseline is not None:
        raise ConfigError("--baseline: a comparison needs several runs, got one; give a folder or more runs")
    elif format == "json":
        (run,) = runs
        said = {"path": printable(str(run.path)), "status": run.status, "config": run.config}
        say_json(said | {"summary": run.summary, "rounds": run.rounds})
    else:
        say(*details(runs[0]))
    if chart:
        save_chart(runs, chart, y)


def _readable(paths: Sequence[Path], needs_rounds: bool) -> list[Run]:
    """Return the runs at and below these paths. A damaged one is left out with a warning, or raises if it was named.

    All records are read only if needed: for charts, and for the round in which a mean reaches a target.
    """
    from fedge.cli.output import warn
    from fedge.report.collect import damage
    from fedge.runs import find_runs

    def read(run: Run) -> object:
        return run.rounds if needs_rounds or run.config.get("target") else None

    readable = []
    for run in {run.path: run for path in paths for run in find_runs(path)}.values():
        if (problem := damage(run, read)) is None:
            readable.append(run)
        elif run.path in paths:
            raise RunError(problem)
        else:
            warn(f"left out: {problem}")
    if not readable:
        raise RunError(f"no runs in {', '.join(map(str, paths))}; start one with `fedge run FILE`")
    return readable
