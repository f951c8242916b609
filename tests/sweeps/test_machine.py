"""Memory of the machine and of processes."""

import sys
from multiprocessing import get_context

import pytest

from fedge.sweeps.machine import peak_memory_mb, usable_memory_mb

MB = 2**20


def hold(connection) -> None:
    """A worker with 64 MB of private memory, until it is told to end."""
    held = bytearray(b"x") * (64 * MB)
    connection.send(len(held))
    connection.recv()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
def test_the_memory_of_workers_is_counted() -> None:
    fork = get_context("fork")
    shared = bytearray(b"y") * (128 * MB)  # a worker inherits it at no cost
    before = peak_memory_mb()
    ours, theirs = fork.Pipe()
    worker = fork.Process(target=hold, args=(theirs,))
    worker.start()
    try:
        assert ours.recv() == 64 * MB
        assert before + 60 < peak_memory_mb() < before + 120
    finally:
        ours.send("end")
        worker.join()
    assert len(shared) == 128 * MB
    assert peak_memory_mb() < before + 30


def test_some_memory_is_usable() -> None:
    assert usable_memory_mb() > 0
