"""Messages of a run to its parent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedge.core.errors import TrainingError
from fedge.sweeps import machine, worker
from fedge.sweeps.machine import peak_memory_mb, usable_memory_mb
from fedge.sweeps.worker import Ended, NoticeMessage, ProgressForwarder, ProgressMessage


class Wire:
    """Records what was sent."""

    def __init__(self):
        self.sent = []

    def send(self, message):
        self.sent.append(message)


@pytest.fixture
def wire(monkeypatch):
    monkeypatch.setattr(worker, "peak_memory_mb", lambda: 7.0)
    return Wire()


def test_events_are_forwarded(wire):
    forwarder = ProgressForwarder(wire, os.getppid())
    forwarder.begin("runs/a", 4, 9)
    forwarder.notice("be careful")
    forwarder.round({"round": 4, "accuracy": 0.5, "train_loss": 2.0})
    assert wire.sent == [
        ProgressMessage(3, {}, 7.0, begins=True),
        NoticeMessage("be careful"),
        ProgressMessage(4, {"accuracy": 0.5, "train_loss": 2.0}, 7.0),
    ]


def test_fast_rounds_are_reported_together(wire):
    forwarder = ProgressForwarder(wire, os.getppid())
    forwarder.round({"round": 1, "accuracy": 0.5})
    forwarder.round({"round": 2, "accuracy": 0.6})
    forwarder.round({"round": 3, "loss": 1.0})
    forwarder.end({"rounds": 3})
    assert wire.sent == [
        ProgressMessage(1, {"accuracy": 0.5}, 7.0),
        ProgressMessage(3, {"accuracy": 0.6, "loss": 1.0}, 7.0),
    ]


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (TrainingError("the loss is nan"), Ended("the loss is nan", 5)),
        (MemoryError(), Ended("ran out of memory", 1, out_of_memory=True)),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 bytes"), Ended("ran out of memory", 1, True)),
        (RuntimeError("shapes differ"), Ended("RuntimeError: shapes differ", 1)),
        (KeyError("x"), Ended("KeyError: 'x'", 1)),
    ],
)
def test_how_a_run_ends(monkeypatch, wire, error, ended):
    def fail(run, forwarder):
        raise error

    monkeypatch.setattr(worker, "train", fail)
    assert worker._train(None, ProgressForwarder(wire, os.getppid())) == ended


def test_a_run_without_a_parent_ends(wire):
    child = os.fork()
    if child == 0:
        ProgressForwarder(wire, parent=-1).round({"round": 1})
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


@pytest.mark.parametrize(
    ("free", "container", "usable"), [(1000.0, None, 800.0), (1000.0, 500.0, 400.0), (None, 500.0, 400.0)]
)
def test_usable_memory_follows_the_tighter_limit(monkeypatch, free, container, usable):
    monkeypatch.setattr(machine, "_free_mb", lambda: free)
    monkeypatch.setattr(machine, "_free_in_container_mb", lambda: container)
    assert usable_memory_mb() == pytest.approx(usable)


def test_peak_memory_is_at_least_current_memory():
    used_mb = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    assert 0.99 * used_mb < peak_memory_mb() < 100 * used_mb
