"""`fedge sweep`"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedge.cli.parameters import AcceptCode, Changes, ExperimentFile, Format, Quiet, RunsFolder
from fedge.core.errors import ConfigError
from fedge.core.fields import measured_on
from fedge.core.printable import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from fedge.report.groups import RunGroup
    from fedge.sweeps.board import Board, Line, Listener
    from fedge.sweeps.execute import PointOutcome
    from fedge.sweeps.plan import Sweep

_MANY = 1_000
"""Larger sweeps need confirmation."""

_NUM_BEST = 10
_INTERVAL_S = 10.0  # seconds between summary lines while no run ends
_FRAME_S = 0.1  # seconds between redraws


def sweep(
    file: ExperimentFile,
    changes: Changes = None,
    runs: RunsFolder = Path("runs"),
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start large sweeps without asking.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="List the runs of the sweep without training.")] = False,
    accept_code: AcceptCode = False,
    quiet: Quiet = False,
    format: Format = "text",
) -> None:
    """Train every combination of settings that have several values.

    A list where one value is expected is an axis; the table `sweep` adds
    ranges, zipped and conditional axes, exclusions and limits. Runs go to a
    directory named after the sweep and train in parallel. If the sweep is
    stopped, the same command resumes it and skips complete runs. A failed
    run does not stop the others; the exit code is then that of the failure,
    or 1 if there were several kinds.

    Examples:

      fedge sweep grid.toml
      fedge sweep first.toml --set 'algorithm.learning_rate=[0.01,0.1,1.0]' --set sweep.workers=2
      fedge sweep grid.toml --plan
      fedge sweep grid.toml --quiet --yes --format json | jq .failures
    """
    from fedge.sweeps.execute import execute
    from fedge.sweeps.plan import load, work_out

    asked = load(file, changes or ())
    if plan:
        _say_plan(asked, format)
        return
    if asked.num_runs > _MANY and not yes:
        _confirm(asked.num_runs)
    with _watching(quiet) as listener:
        outcome = execute(work_out(asked), runs, listener, accept_code=accept_code)
    _say_outcome(outcome, format, quiet)
    codes = {ended.exit_code for ended in outcome.failures.values()}
    if codes:
        raise typer.Exit(codes.pop() if len(codes) == 1 else 1)


def _confirm(num_runs: int) -> None:
    if not _can_ask():
        raise ConfigError(f"this sweep has {num_runs:,} runs; to start them all, pass --yes")
    if not typer.confirm(f"This sweep has {num_runs:,} runs. Start them?", err=True):
        raise ConfigError(f"sweep not started: it has {num_runs:,} runs; sweep.fraction runs a sample of them")


def _can_ask() -> bool:
    return sys.stdin.isatty()


def _say_plan(asked: Sweep, format: Literal["text", "json"]) -> None:
    from fedge.cli.output import say, say_json
    from fedge.sweeps.plan import work_out

    trials = work_out(asked).trials
    if format == "json":
        points = [{"name": trial.name, "values": trial.values, "problems": list(trial.problems)} for trial in trials]
        say_json({"name": asked.name, "num_runs": asked.num_runs, "points": points})
        return
    lines = [f"{trial.name}{': ' if trial.problems else ''}{'; '.join(trial.problems)}" for trial in trials]
    say(*lines, "", f"{len(trials):,} points, {asked.num_runs:,} runs")


def _say_outcome(outcome: PointOutcome, format: Literal["text", "json"], quiet: bool) -> None:
    from fedge.cli.listed_runs import entry
    from fedge.cli.output import say, say_json, tell
    from fedge.report.groups import group_runs
    from fedge.report.tables import compare, records
    from fedge.report.terminal_table import ResultTable
    from fedge.runs import Run

    board, trained = outcome.board, [Run(path) for path in outcome.runs]
    groups = group_runs(trained)
    if board.ranks:
        groups.sort(key=lambda group: _rank(group, board))
    rows = compare(groups)
    if format == "json":
        failures = [
            {"name": name, "reason": ended.reason, "exit_code": ended.exit_code}
            for name, ended in outcome.failures.items()
        ]
        said: dict[str, Any] = {"sweep": str(outcome.folder), "failures": failures}
        said |= {"metric": board.metric, "measured_on": measured_on(board.metric)}
        say_json(said | {"comparison": records(rows), "runs": [entry(run) for run in trained]})
    elif not quiet:
        if rows:
            say(ResultTable(rows[:_NUM_BEST]), "")
        if len(rows) > _NUM_BEST:
            which = (
                f"the best {_NUM_BEST} of {len(rows)} by {_title(board)}"
                if board.ranks
                else f"{_NUM_BEST} of {len(rows)}"
            )
            say(f"{which}; all: fedge show {outcome.folder}")
        if len(rows) > 1 and not board.ranks:
            say("points are not ranked by the test set; to rank them, set data.validation")
        say(f"sweep: {outcome.folder}")
    for name, ended in outcome.failures.items():
        tell(f"failed: {name}: {ended.reason}")
    if outcome.failures:
        total = len(outcome.failures) + len(outcome.runs)
        tell(f"error: {len(outcome.failures)} of {total} runs failed; the same command retries them")


def _rank(group: RunGroup, board: Board) -> float:
    """Return a sort key by the mean over seeds; the best point has the smallest."""
    return fmean(board.rank((run.summary or {}).get(board.metric)) for run in group.runs)


@contextmanager
def _watching(quiet: bool) -> Iterator[Listener]:
    """Yield a listener that displays the sweep's progress; on Ctrl-C, print how to resume."""
    from rich.console import Console

    from fedge.sweeps.board import Unwatched

    console = Console(stderr=True)
    fit = sys.stderr.isatty() and not console.is_dumb_terminal
    screen = Unwatched() if quiet else SweepPicture(console) if fit else SweepLines()
    try:
        yield screen
    except KeyboardInterrupt:
        if isinstance(screen, SweepPicture):
            screen.close()
        from fedge.cli.output import tell

        tell(f"interrupted; to resume: {shlex.join(['fedge', *sys.argv[1:]])}")
        raise
    finally:
        if isinstance(screen, SweepPicture):
            screen.close()


class SweepLines:
    """A line for every run that ends, and a summary line at intervals."""

    def __init__(self) -> None:
        self._said_s = time.monotonic()

    def notice(self, text: str) -> None:
        from fedge.cli.output import tell

        self._said_s = time.monotonic()
        tell(text)

    def ended(self, line: Line, board: Board) -> None:
        number = len(board.lines("complete", "failed"))
        value = _value(line, board)
        said = _sentence(f"{line.name}: {line.status}", f"{_title(board)} {value}" if value else "", _left(board))
        self.notice(f"{number}/{board.num_runs} {said}")

    def show(self, board: Board) -> None:
        if time.monotonic() - self._said_s >= _INTERVAL_S:
            self.notice(_summary(board))


class SweepPicture:
    """A live display of the sweep: overall progress, the best point, and the runs in progress."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        # No refresh thread: the sweep forks workers, and forking with other threads is unsafe.
        self._live = Live(console=console, auto_refresh=False)
        self._console = console
        self._board: Board | None = None
        self._drawn_s = 0.0
        self._live.start()

    def notice(self, text: str) -> None:
        self._console.print(printable(text, "\n\t"), markup=False, highlight=False, soft_wrap=True)

    def ended(self, line: Line, board: Board) -> None:
        if line.status == "failed":
            self.notice(f"{line.name}: failed")

    def show(self, board: Board) -> None:
        self._board = board
        if time.monotonic() - self._drawn_s >= _FRAME_S:
            self._draw()

    def close(self) -> None:
        """Stop updating and leave the last state on the terminal."""
        self._draw()
        self._live.stop()

    def _draw(self) -> None:
        self._drawn_s = time.monotonic()
        if self._board is not None:
            from fedge.report.clean_text import Clean

            self._live.update(Clean(_draw(self._board)), refresh=True)


def _draw(board: Board) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    head = Table.grid(padding=(0, 1))
    head.add_row(ProgressBar(total=1.0, completed=board.share, width=24), _sentence(_counts(board), _left(board)))
    shown = Text(f"  {_best(board) or _title(board)}", no_wrap=True, overflow="ellipsis")
    under_way = Table.grid(padding=(0, 2))
    for line in board.lines("running"):
        name = Text(line.name, no_wrap=True, overflow="ellipsis")
        under_way.add_row(f"  round {line.round}/{line.num_rounds}", _value(line, board), name)
    return Group(head, shown, under_way)


def _summary(board: Board) -> str:
    """`12/48 complete, 2 running, best accuracy 91.2% (fedavg+learning_rate-0.1), 1:23 left`"""
    return _sentence(_counts(board), _best(board), _left(board))


def _counts(board: Board) -> str:
    running, failed = len(board.lines("running")), len(board.lines("failed"))
    complete = f"{len(board.lines('complete'))}/{board.num_runs} complete"
    return _sentence(complete, f"{running} running", f"{failed} failed" if failed else "")


def _best(board: Board) -> str:
    best = board.best
    return "" if best is None else f"best {_title(board)} {_value(best, board)} ({best.name})"


def _title(board: Board) -> str:
    """Return the title of the metric shown, marked if it is a test metric, which does not rank points."""
    title = board.declared.title
    return title if board.ranks else f"test set {title}"


def _value(line: Line, board: Board) -> str:
    return "" if line.value is None else board.declared.write(line.value)


def _left(board: Board) -> str:
    from fedge.report.run_totals import duration

    return "" if board.left_s is None else f"{duration(board.left_s)} left"


def _sentence(*parts: str) -> str:
    return ", ".join(filter(None, parts))
