"""`fedge report`"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from fedge.cli.parameters import Baseline, RunPaths
from fedge.core.errors import ConfigError


def report(
    paths: RunPaths,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="A page (.html), Markdown (.md), or LaTeX tables (.tex)."),
    ],
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="The title of the report.")] = "Fedge report",
    baseline: Baseline = None,
) -> None:
    """Write a report on runs: results, charts, analysis, settings, commands.

    A page is one file that includes its charts and works offline; it needs
    fedge\\[view]. Markdown has everything except the charts, LaTeX only the
    tables.

    Examples:

      fedge report runs -o report.html
      fedge report runs/fedavg runs/scaffold -o report.md --title 'Two algorithms'
      fedge report runs -o report.html --baseline fedavg
      fedge report runs -o tables.tex
    """
    from fedge.cli.output import say, warn, working
    from fedge.core.storage import write_atomic, writing
    from fedge.report.collect import collect
    from fedge.report.document import describe_runs, describe_source
    from fedge.report.writers import latex, markdown, page

    writers = {".html": page, ".md": markdown, ".tex": latex}
    if output.suffix not in writers:
        raise ConfigError(f"-o {output}: expected .html, .md or .tex, got {output.suffix or 'no suffix'}")
    with working("reading runs"):
        runs, problems = collect(paths)
    for problem in problems:
        warn(problem)
    source = describe_source(paths, datetime.now().astimezone())
    with working("writing the report"):
        text = writers[output.suffix](describe_runs(runs, problems, title, baseline, source))
    with writing(output, "write the report again"):
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(output, text.encode())
    say(f"report: {output}")
