"""Execute a sweep, from its plan to its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from fedge import config as configuration
from fedge.core.errors import ConfigError, RunError
from fedge.core.lock import Lock
from fedge.core.machine import num_processors
from fedge.core.storage import writing
from fedge.runs import Run
from fedge.runs.code import forget_code
from fedge.runs.directory import create_repeats
from fedge.runs.files import CONFIG, LOCK
from fedge.sweeps.board import Board, Listener
from fedge.sweeps.machine import usable_memory_mb
from fedge.sweeps.plan import PlannedRun, SweepPlan, Trial, check_folder, damage, is_done, write_plan
from fedge.sweeps.run_pool import PoolLimits, RunPool
from fedge.sweeps.worker import Ended


class PointOutcome(NamedTuple):
    """The outcome of a sweep."""

    folder: Path
    runs: list[Path]  # complete runs, in order
    failures: dict[str, Ended]
    board: Board


def execute(
    plan: SweepPlan, runs: Path, listener: Listener, limits: PoolLimits | None = None, accept_code: bool = False
) -> PointOutcome:
    """Execute all incomplete runs of a sweep, below `runs`. A failed run does not stop the others.

    If user files have changed since the first run, the remaining runs fail, unless `accept_code`.
    """
    folder = runs / plan.sweep.name
    check_folder(folder)
    with writing(folder, "start the sweep again"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = Lock(folder / LOCK)
    try:
        if accept_code:
            forget_code(folder)
        return _Execution(plan, folder, listener, limits or limits_of(plan), accept_code).run()
    finally:
        lock.release()


def limits_of(plan: SweepPlan) -> PoolLimits:
    """Return the limits set in the plan; by default those of the machine."""
    options = plan.sweep.options
    return PoolLimits(options.workers or num_processors(), options.memory_mb or usable_memory_mb(), options.retries)


class _Execution:
    def __init__(
        self, plan: SweepPlan, folder: Path, listener: Listener, limits: PoolLimits, accept_code: bool
    ) -> None:
        self._plan, self._folder, self._listener, self._accept_code = plan, folder, listener, accept_code
        self._halving = plan.sweep.options.halving
        self._board = Board(plan.metric, own=plan.own)
        self._pool = RunPool(limits, self._board, listener)
        self._failures: dict[str, Ended] = {}

    def run(self) -> PointOutcome:
        plan, halving = self._plan, self._halving
        trials = [trial for trial in plan.trials if trial.config]
        self._check_places(trials)
        write_plan(plan, self._folder, {})
        self._refuse_invalid()
        if halving is None:
            self._train(trials)
        else:
            rounds = trials[0].runs(self._folder)[0].rounds
            rungs = halving.rungs(rounds)
            num_seeds = len(trials[0].runs(self._folder))
            for i, reached in enumerate(rungs):
                self._board.later_rounds = num_seeds * halving.later_rounds(rungs[i:], len(trials))
                self._train(trials, reached)
                trials = self._best(trials, halving.survivors(len(trials)), reached)
        write_plan(plan, self._folder, {name: str(ended.reason) for name, ended in self._failures.items()})
        every = [run for trial in plan.trials for run in trial.runs(self._folder)]
        complete = [run.path for run in every if run.name not in self._failures]
        return PointOutcome(self._folder, complete, self._failures, self._board)

    def _check_places(self, trials: Sequence[Trial]) -> None:
        """Raise a RunError for existing runs with other settings before starting, and record damaged ones as failed."""
        for run in (run for trial in trials for run in trial.runs(self._folder)):
            if (problem := damage(run)) is not None:
                self._failures[run.name] = Ended(problem, RunError.exit_code)
            else:
                is_done(run, self._halving is not None)

    def _refuse_invalid(self) -> None:
        """Report the points that will not be run at once."""
        for trial in self._plan.trials:
            if trial.config is None:
                self._failures[trial.name] = Ended("; ".join(trial.problems), ConfigError.exit_code)
        for name in self._failures:
            self._board.place([name], 0)
            self._listener.ended(self._board.end(name, failed=True), self._board)

    def _train(self, trials: Sequence[Trial], rounds: int | None = None) -> None:
        """Train these points up to `rounds` rounds. Runs that failed before are skipped."""
        todo, num_done = [], 0
        for trial in trials:
            _create_repeats(trial, self._folder)
            for run in trial.runs(self._folder):
                if run.name in self._failures:
                    continue
                run = run if rounds is None else run.until(rounds)
                self._board.place([run.name], run.rounds)
                if is_done(run, self._halving is not None):
                    self._board.complete(run.name, *self._measured(run))
                    num_done += 1
                else:
                    todo.append(run._replace(accept_code=self._accept_code))
        if num_done:
            self._listener.notice(f"{num_done} of {num_done + len(todo)} runs are already complete")
        self._failures |= self._pool.run(todo)

    def _best(self, trials: Sequence[Trial], count: int, rounds: int) -> list[Trial]:
        """Return the `count` best points at this round, in order; ties go to the earlier point."""
        ranks = [self._rank(trial, rounds) for trial in trials]
        best = sorted(range(len(trials)), key=ranks.__getitem__)[:count]
        return [trials[i] for i in sorted(best)]

    def _rank(self, trial: Trial, rounds: int) -> float:
        """Return the mean rank over seeds; infinity if a seed has failed."""
        runs = [run.until(rounds) for run in trial.runs(self._folder)]
        if any(run.name in self._failures for run in runs):
            return float("inf")
        values = [self._measured(run)[1] for run in runs]
        if None in values:
            raise ConfigError(
                f"sweep.metric: {trial.name} recorded no {self._plan.metric}; name a metric that it records"
            )
        return fmean(map(self._board.rank, values))

    def _measured(self, run: PlannedRun) -> tuple[int, float | None]:
        """Return the rounds of a run, up to the planned ones, and the last value of the metric among them."""
        records = [record for record in Run(run.path).rounds if record["round"] <= run.rounds]
        values = [record[self._plan.metric] for record in records if record.get(self._plan.metric) is not None]
        return (records[-1]["round"] if records else 0), (values[-1] if values else None)


def _create_repeats(trial: Trial, folder: Path) -> None:
    """Create the directory of a repeated point, so that `fedge resume` recognises it."""
    path = folder / trial.name
    if trial.config is not None and trial.config.seeds is not None and not (path / CONFIG).exists():
        create_repeats(path, configuration.plain(trial.config))
