"""Options and completions shared by several commands."""

from __future__ import annotations

from glob import escape, iglob
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedge.core.fields import FIELDS


def complete_experiment(incomplete: str) -> list[str]:
    """Complete experiment files, and the folders that may contain them."""
    found = sorted(iglob(f"{escape(incomplete)}*"))
    return [f"{name}/" if Path(name).is_dir() else name for name in found if _leads_to_toml(Path(name))]


def complete_run(incomplete: str) -> list[str]:
    """Complete run directories, and the folders that may contain them; those in `runs` if nothing is typed yet."""
    folders = sorted(iglob(f"{escape(incomplete or 'runs/')}*/"))
    return [name.rstrip("/") if Path(name, "config.json").is_file() else name for name in folders]


def complete_metric(incomplete: str) -> list[str]:
    """Complete the names of metrics."""
    return [field.name for field in FIELDS if field.role == "metric" and field.name.startswith(incomplete)]


def _leads_to_toml(path: Path) -> bool:
    return path.is_dir() or path.suffix == ".toml"


ExperimentFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="An experiment file (TOML).", autocompletion=complete_experiment)
]
RunPaths = Annotated[
    list[Path], typer.Argument(metavar="RUN", help="Runs, or folders of runs.", autocompletion=complete_run)
]
RunsFolder = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Directory for runs.")]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="a.b=v",
        help="Change a setting, such as algorithm.batch_size=32; a.b= unsets it. May be repeated.",
    ),
]
AcceptCode = Annotated[
    bool,
    typer.Option("--accept-code", help="Continue even if your own Python files have changed; the run records this."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors, and the JSON result if requested.")]
Format = Annotated[
    Literal["text", "json"],
    typer.Option("--format", metavar="text|json", help="Text, or one JSON document; messages go to stderr."),
]
Chart = Annotated[
    Path | None,
    typer.Option(
        "--chart",
        metavar="FILE",
        help="Save learning curves over rounds and over upload as .svg, .png, .pdf or .html; needs fedge\\[view].",
    ),
]
Metric = Annotated[
    str, typer.Option("--y", metavar="METRIC", help="The metric that the chart shows.", autocompletion=complete_metric)
]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="NAME|KEY=VALUE",
        help="Compare the others with this baseline, seed by seed: a name in the table, an algorithm, or a "
        "setting such as algorithm.local_steps=1.",
    ),
]
