"""What several commands can be told."""

from __future__ import annotations

from glob import escape, iglob
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedge.core.fields import FIELDS


def complete_experiment(incomplete: str) -> list[str]:
    """Experiment files, and folders on the way to them."""
    found = sorted(iglob(f"{escape(incomplete)}*"))
    return [f"{name}/" if Path(name).is_dir() else name for name in found if _leads_to_toml(Path(name))]


def complete_run(incomplete: str) -> list[str]:
    """Run directories, and folders on the way to them; those in `runs` if nothing has been written yet."""
    folders = sorted(iglob(f"{escape(incomplete or 'runs/')}*/"))
    return [name.rstrip("/") if Path(name, "config.json").is_file() else name for name in folders]


def complete_metric(incomplete: str) -> list[str]:
    """What a round may have measured."""
    return [field.name for field in FIELDS if field.role == "metric" and field.name.startswith(incomplete)]


def _leads_to_toml(path: Path) -> bool:
    return path.is_dir() or path.suffix == ".toml"


Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="a.b=v",
        help="Change a setting, such as algorithm.batch_size=32; a.b= unsets; may be repeated.",
    ),
]
AcceptCode = Annotated[
    bool,
    typer.Option("--accept-code", help="Continue although your own Python files have changed; the run records it."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors, and JSON if asked for.")]
Format = Annotated[
    Literal["text", "json"],
    typer.Option("--format", metavar="text|json", help="For people, or one JSON document; all else goes to stderr."),
]
Chart = Annotated[
    Path | None,
    typer.Option(
        "--chart",
        metavar="FILE",
        help="Save learning curves, over rounds and over upload, as .svg, .png, .pdf or .html; needs fedge\\[view].",
    ),
]
Metric = Annotated[
    str,
    typer.Option("--y", metavar="METRIC", help="What the chart shows.", autocompletion=complete_metric),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="NAME|KEY=VALUE",
        help="Compare the others with this one seed by seed: a name in the table, an algorithm, or a setting such as "
        "algorithm.local_steps=1.",
    ),
]
