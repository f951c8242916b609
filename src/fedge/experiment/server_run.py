"""The run directory that belongs to an experiment file under `fedge server`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from fedge import config as configuration
from fedge.config import Config
from fedge.core.errors import RunError
from fedge.experiment.changed_settings import check_same_run, check_takes_effect
from fedge.net.status import DONE, read_status
from fedge.runs import files
from fedge.runs.read import Run

ServerRunStatus = Literal["new", "unfinished", "complete"]


def is_server_run(path: Path) -> bool:
    """Whether a run was made by `fedge server`, not by a simulation."""
    return (path / files.REGISTRY).is_file()


def server_run_status(path: Path, config: Config) -> ServerRunStatus:
    """Return what is at a path, at which `fedge server` is about to run a configuration.

    Raises a RunError if it is a simulated run or damaged, and a ConfigError that names each setting of an unfinished or
    complete run that must stay, and is another one in this configuration.
    """
    if not (path / files.CONFIG).exists():
        return "new"
    run = Run(path)
    simulated = files.holds_repeats(path, run.config) or (path / files.STATE).exists() or run.last("round") is not None
    if simulated and not is_server_run(path):
        raise RunError(
            f"{path} is a simulated run; give this one another name with --set name=..., or choose another folder with "
            "--runs"
        )
    if run.problem is not None:
        raise RunError(run.problem)
    before = configuration.parse(run.config)
    check_same_run(before, config)
    if run.status != "complete" or not _told(path):
        return "unfinished"
    check_takes_effect(before, config, run.last("round") or 0)
    return "complete" if configuration.effective(before) == configuration.effective(config) else "unfinished"


def _told(path: Path) -> bool:
    """Return whether clients were told of the end; a server that was killed before has to be started again for that."""
    status = read_status(path / files.STATUS)
    return status is None or status.state == DONE
