"""`fedge run`"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedge.cli.parameters import Changes, Chart, Format, Metric, Quiet, RunsFolder, complete_experiment
from fedge.core.errors import ConfigError

if TYPE_CHECKING:
    from fedge.config import Config


def run(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Experiment files (TOML).", autocompletion=complete_experiment)
    ],
    changes: Changes = None,
    runs: RunsFolder = Path("runs"),
    chart: Chart = None,
    y: Metric = "accuracy",
    quiet: Quiet = False,
    format: Format = "text",
) -> None:
    """Train one or more experiments, one after the other, and compare them.

    Each run gets a new directory, named after the experiment. All files are
    checked before the first one trains. Ctrl-C stops a run; `fedge resume`
    continues it from its last checkpoint.

    Examples:

      fedge run first.toml
      fedge run first.toml --set algorithm.learning_rate=0.05 --set 'seeds=[1,2,3]'
      fedge run fedavg.toml scaffold.toml --chart compared.svg
      fedge run first.toml --quiet --format json | jq .comparison
    """
    from fedge.cli.charted import check_charted, metrics_of
    from fedge.cli.comparison import save_chart, say_trained
    from fedge.cli.watching import watching
    from fedge.experiment import start as experiment
    from fedge.report.style import check_saving

    if chart:
        check_saving(chart)
    configs = _load(files, changes or ())
    if chart:
        for config in configs:
            check_charted(y, metrics_of(config), config)
    with watching(quiet) as progress:
        paths = [experiment.start(config, runs, progress) for config in configs]
    trained = say_trained(paths, format, quiet)
    if chart:
        save_chart(trained, chart, y)


def _load(files: Sequence[Path], changes: Sequence[str]) -> list[Config]:
    from fedge.config import load

    configs, problems = [], []
    for file in files:
        try:
            configs.append(load(file, changes))
        except ConfigError as error:
            problems += [_located(file, problem) if len(files) > 1 else problem for problem in error.problems]
    if problems:
        raise ConfigError(*problems)
    return configs


def _located(file: Path, problem: str) -> str:
    return problem if problem.startswith(f"{file}: ") else f"{file}: {problem}"
