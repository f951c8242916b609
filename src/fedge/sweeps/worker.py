"""One run in its own process, which reports its progress to the parent."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from fedge import config as configuration
from fedge.core.effect import omit
from fedge.core.errors import FedgeError
from fedge.core.fields import describe
from fedge.core.machine import die_with_parent, inherit_memory, take_share
from fedge.experiment import start as experiment
from fedge.runs.files import CONFIG
from fedge.sweeps.machine import peak_memory_mb
from fedge.sweeps.plan import PlannedRun

_INTERVAL_S = 0.1  # minimum time between two progress messages


class ProgressMessage(NamedTuple):
    """Message: the progress of a run."""

    round: int
    metrics: Mapping[str, float]
    peak_mb: float
    begins: bool = False


class NoticeMessage(NamedTuple):
    """Message: a notice for the user."""

    text: str


class Ended(NamedTuple):
    """Message: a run is complete, or has failed for a reason."""

    reason: str | None = None
    exit_code: int = 0
    out_of_memory: bool = False


class ProgressForwarder:
    """A listener that forwards a run's progress to the parent, at a limited rate."""

    def __init__(self, connection: Connection, parent: int) -> None:
        self._connection, self._parent = connection, parent
        self._sent_s = 0.0
        self._metrics: dict[str, float] = {}

    def begin(self, title: str, first_round: int, num_rounds: int) -> None:
        self._connection.send(ProgressMessage(first_round - 1, {}, peak_memory_mb(), begins=True))

    def round(self, record: Mapping[str, Any]) -> None:
        if os.getppid() != self._parent:  # the parent is gone: free the run for a restarted sweep
            os._exit(1)
        measured = {name: value for name, value in record.items() if describe(name).role == "metric"}
        self._metrics |= {name: value for name, value in measured.items() if value is not None}
        now = time.monotonic()
        if now - self._sent_s >= _INTERVAL_S:
            self._sent_s = now
            self._send(record["round"])

    def notice(self, text: str) -> None:
        self._connection.send(NoticeMessage(text))

    def end(self, summary: Mapping[str, Any]) -> None:
        self._send(summary["rounds"])

    def _send(self, round: int) -> None:
        self._connection.send(ProgressMessage(round, dict(self._metrics), peak_memory_mb()))


def work(run: PlannedRun, connection: Connection, output: int, parent: int, num_processes: int) -> None:
    """The main function of the process: train, and report how it ended.

    Output goes to a file, so that it does not disturb the display.
    """
    inherit_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent ends this one
    die_with_parent(parent)
    take_share(num_processes)
    for stream in (1, 2):
        os.dup2(output, stream)
    connection.send(_train(run, ProgressForwarder(connection, parent)))


def _train(run: PlannedRun, forwarder: ProgressForwarder) -> Ended:
    try:
        train(run, forwarder)
    except FedgeError as error:
        return Ended(str(error), error.exit_code)
    except MemoryError:
        return _out_of_memory()
    except Exception as error:
        if isinstance(error, RuntimeError) and "allocate memory" in str(error):  # raised by torch
            return _out_of_memory()
        if os.environ.get("FEDGE_DEBUG") == "1":
            return Ended(traceback.format_exc(), FedgeError.exit_code)
        return Ended(f"{type(error).__name__}: {error}", FedgeError.exit_code)
    return Ended()


def train(run: PlannedRun, forwarder: ProgressForwarder) -> None:
    """Start a run at its path, or resume it."""
    if not (run.path / CONFIG).exists():
        experiment.start_at(run.path, configuration.parse(run.config), forwarder, run.sweep)
        return
    experiment.resume(run.path, omit(run.config, ("seed", "seeds")), forwarder, run.accept_code, run.sweep)


def _out_of_memory() -> Ended:
    return Ended("ran out of memory", 1, out_of_memory=True)
