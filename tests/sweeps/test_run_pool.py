"""Runs in processes, with fake work."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from fedge.sweeps.board import Board, Unwatched
from fedge.sweeps.plan import PlannedRun
from fedge.sweeps.run_pool import PoolLimits, RunPool
from fedge.sweeps.worker import Ended, NoticeMessage, ProgressMessage


class Ear(Unwatched):
    """Records notices, and how many runs were concurrent."""

    def __init__(self):
        self.notices = []
        self.statuses = {}
        self.most = 0

    def notice(self, text):
        self.notices.append(text)

    def ended(self, line, board):
        self.statuses[line.name] = line.status

    def show(self, board):
        self.most = max(self.most, len(board.lines("running")))


@pytest.fixture
def ear():
    return Ear()


@pytest.fixture
def work_off(tmp_path, ear, monkeypatch):
    """Execute runs of these names with a function of (run, connection)."""

    def run(names, work, **limits):
        monkeypatch.setattr("fedge.sweeps.run_pool.work", lambda run, connection, *_: work(run, connection))
        board = Board("accuracy")
        board.place(names, 1)
        known = {"workers": 2, "memory_mb": 1000.0, "retries": 2, "pause_s": 0.01} | limits
        return RunPool(PoolLimits(**known), board, ear).run(
            [PlannedRun(name, tmp_path / name, {"rounds": 1}, tmp_path) for name in names]
        )

    return run


def succeed(run, connection, peak_mb=100.0):
    connection.send(ProgressMessage(1, {"accuracy": 0.5}, peak_mb))
    time.sleep(0.2)
    connection.send(Ended())


def count(path: Path) -> int:
    """Return how often this was called for a path."""
    with path.open("a") as file:
        file.write("x")
    return path.stat().st_size


def test_all_runs_are_executed(work_off, ear):
    assert work_off(["a", "b", "c"], succeed) == {}
    assert ear.statuses == dict.fromkeys("abc", "complete")
    assert ear.most == 2


@pytest.mark.parametrize(
    ("limits", "peak_mb", "most"),
    [
        ({"workers": 3}, 100.0, 3),
        ({"workers": 1}, 100.0, 1),
        ({"workers": 3}, 400.0, 2),  # 1000 MB available
        ({"workers": 3}, 2000.0, 1),  # not even one fits; one is tried anyway
    ],
)
def test_concurrency_follows_the_limits(work_off, ear, limits, peak_mb, most):
    assert work_off(list("abcdef"), lambda run, connection: succeed(run, connection, peak_mb), **limits) == {}
    assert ear.most == most


def test_the_first_run_is_alone_until_its_memory_is_known(work_off, ear, tmp_path):
    def work(run, connection):
        if run.name == "a":
            time.sleep(0.5)
        else:
            (tmp_path / "other").touch()
        connection.send(ProgressMessage(1, {}, 100.0))
        connection.send(NoticeMessage(str((tmp_path / "other").exists())))
        connection.send(Ended())

    work_off(["a", "b"], work)
    assert ear.notices == ["a: False", "b: True"]


def test_a_failure_stops_no_other_run_and_is_not_retried(work_off, ear, tmp_path):
    def work(run, connection):
        count(tmp_path / f"{run.name}.count")
        connection.send(Ended("it is not finite", 5) if run.name == "b" else Ended())

    assert work_off(["a", "b", "c"], work) == {"b": Ended("it is not finite", 5)}
    assert ear.statuses == {"a": "complete", "b": "failed", "c": "complete"}
    assert (tmp_path / "b.count").read_text() == "x"


@pytest.mark.parametrize("how", ["killed", "said"])
def test_out_of_memory_is_retried(work_off, ear, tmp_path, how):
    def work(run, connection):
        if run.name == "b" and count(tmp_path / "b.count") < 3:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            connection.send(Ended("ran out of memory", 1, out_of_memory=True))
        else:
            succeed(run, connection)

    assert work_off(["a", "b", "c"], work) == {}
    assert ear.statuses == dict.fromkeys("abc", "complete")
    reason = {"killed": "was killed by SIGKILL", "said": "ran out of memory"}[how]
    assert ear.notices == [f"b: {reason}; retrying in {pause:g} s" for pause in (0.01, 0.02)]


def test_a_run_fails_after_the_last_retry(work_off):
    failed = work_off(["a"], lambda run, connection: os.kill(os.getpid(), signal.SIGKILL), retries=1)
    assert failed["a"].reason == "was killed by SIGKILL (2 tries)"
    assert failed["a"].exit_code == 1


def test_concurrency_drops_after_a_death_and_recovers(work_off, ear, tmp_path):
    beside = []

    def work(run, connection):
        if run.name == "b" and count(tmp_path / "b.count") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        succeed(run, connection)

    class Watching(Ear):
        def show(self, board):
            if self.notices:
                beside.append(len(board.lines("running")))

    ear.__class__ = Watching
    assert work_off(list("abcdef"), work, workers=2) == {}
    assert beside[0] == 1
    assert max(beside) == 2


def test_a_process_that_ends_without_a_message_has_failed(work_off):
    failed = work_off(["a"], lambda run, connection: os._exit(3))
    assert failed["a"] == Ended("ended with code 3", 1)


def test_the_last_message_of_a_process_is_received(work_off, ear, monkeypatch):
    monkeypatch.setattr(RunPool, "_listen", lambda self: time.sleep(0.2))  # no message is received while it runs
    assert work_off(["a"], lambda run, connection: connection.send(Ended())) == {}
    assert ear.statuses == {"a": "complete"}


def test_a_run_in_use_is_retried(work_off, ear, tmp_path):
    from fedge.core.lock import Lock

    (tmp_path / "a").mkdir()
    lock = Lock(tmp_path / "a" / "lock")
    failed = work_off(["a"], succeed)
    assert failed["a"].reason == f"{tmp_path / 'a'} is in use by process {os.getpid()}; end that process (3 tries)"
    lock.release()
    assert work_off(["a"], succeed) == {}


def test_an_interrupt_leaves_no_process(work_off, ear, tmp_path):
    def work(run, connection):
        (tmp_path / "pid").write_text(str(os.getpid()))
        connection.send(ProgressMessage(1, {}, 1.0))
        time.sleep(60)

    class Interrupting(Ear):
        def show(self, board):
            if (tmp_path / "pid").exists():
                raise KeyboardInterrupt

    ear.__class__ = Interrupting
    with pytest.raises(KeyboardInterrupt):
        work_off(["a"], work)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
