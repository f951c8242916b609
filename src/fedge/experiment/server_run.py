"""The run directory of an experiment file under `fedge server`."""

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
    """Return whether a run was made by `fedge server`, not by a simulation."""
    return (path / files.REGISTRY).is_file()


def server_run_status(path: Path, config: Config) -> ServerRunStatus:
    """Return the status of the run at a path where `fedge server` is about to run a configuration.

    Raises RunError if the run is damaged or was made by a simulation, and ConfigError that names each setting that
    would change although it must not.
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
    """Return whether clients were told that the run is complete; if not, the server has to be started again."""
    status = read_status(path / files.STATUS)
    return status is None or status.state == DONE
