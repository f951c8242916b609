"""Progress of simulated runs on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedge.cli.output import tell
from fedge.report.run_display import Watch, choose_screen


@contextmanager
def watching(quiet: bool) -> Iterator[Watch]:
    """Yield a listener that displays the progress of runs; on Ctrl-C, print how to resume."""
    screen = choose_screen(quiet)
    watch = Watch(screen)
    try:
        yield watch
    except KeyboardInterrupt:
        screen.close()
        how = f"; to resume: fedge resume {shlex.quote(str(_experiment(watch.unfinished)))}" if watch.unfinished else ""
        tell(f"interrupted{how}")
        raise
    finally:
        screen.close()


def _experiment(run: Path) -> Path:
    """Return the directory to resume: for a repeat its parent, so that the remaining seeds run too."""
    return run.parent if (run.parent / "config.json").is_file() else run
