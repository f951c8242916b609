"""Hooks for a test's `fedge` processes: die at a chosen moment, or wait for the test.

The nursery calls these functions in the new process, before the command runs; see `e2e/nursery.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any


def die() -> None:
    """End this process as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # do nothing more until the signal takes effect


def at_occurrence(number: int, do: Callable[[], None]) -> Callable[[], None]:
    """Return a function that performs an action the n-th time that it is called, counted from 1."""
    left = number

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            do()

    return count


def wait_for(file: str) -> None:
    """Wait until the test creates a file."""
    deadline = time.monotonic() + 120
    while not Path(file).exists() and time.monotonic() < deadline:
        time.sleep(0.005)


def server(
    secret_seed: int,
    port_file: str,
    transitions_file: str,
    die_at: tuple[str, int] | None = None,
    fill_at: tuple[str, int, str] | None = None,
) -> None:
    """Serve with a known secret seed; write the port to one file, and append the names of transitions to another.

    `die_at` is the name of a transition, and the occurrence at which the server dies. `fill_at` is when a disk fills,
    and a folder on it.
    """
    from fedge.experiment import networked_server

    original = networked_server.serve
    planned: dict[str, Callable[[], None]] = {}
    if die_at:
        planned[die_at[0]] = at_occurrence(die_at[1], die)
    if fill_at:
        planned[fill_at[0]] = at_occurrence(fill_at[1], lambda: fill_disk(fill_at[2]))
    log = os.open(transitions_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def on_transition(transition: Any) -> None:
        os.write(log, f"{transition.name}\n".encode())
        if transition.name in planned:
            planned[transition.name]()

    def on_port(port: int) -> None:
        part = Path(f"{port_file}.part")
        part.write_text(str(port))
        part.rename(port_file)

    def serve(*args: Any, **options: Any) -> Path:
        told = {"secret_seed": secret_seed, "on_transition": on_transition, "on_port": on_port}
        return original(*args, **{**options, **told})

    networked_server.serve = serve  # type: ignore[assignment]


def die_while_writing(name: str, number: int) -> None:
    """Die during the n-th write of a file with this name, which leaves a part of it under another name."""
    _at_first_piece(name, number, die)


def disk_fills_before_writing(name: str, number: int, folder: str) -> None:
    """Fill a disk just before the n-th write of a file with this name."""
    _at_first_piece(name, number, lambda: fill_disk(folder))


def _at_first_piece(name: str, number: int, do: Callable[[], None]) -> None:
    """Act after half of the first piece, when `write_atomic` writes a file for the n-th time."""
    from fedge.core import storage

    original = storage.write_all
    doing = at_occurrence(number, do)

    def write_all(file: int, data: Any) -> None:
        rest = memoryview(data).cast("B")
        target = Path(os.readlink(f"/proc/self/fd/{file}"))
        if target.name == f"{name}.part" and os.lseek(file, 0, os.SEEK_CUR) == 0:
            original(file, rest[: len(rest) // 2])
            doing()
            rest = rest[len(rest) // 2 :]
        original(file, rest)

    storage.write_all = write_all  # type: ignore[assignment]


def fill_disk(folder: str) -> None:
    """Write a file `ballast` until the disk is full."""
    file = os.open(Path(folder) / "ballast", os.O_WRONLY | os.O_CREAT, 0o600)
    for size in (1 << 20, 1 << 12):
        with suppress(OSError):
            while True:
                os.write(file, bytes(size))
    os.close(file)


def client_dies_at(activity: str, number: int = 1) -> None:
    """Die at an offer ("offered"), or when the n-th task reaches a state; at "uploading", with bytes in transit."""
    from fedge.experiment import networked_client
    from fedge.net import offered_work

    dying = at_occurrence(number, die)
    if activity == "uploading":
        stream = offered_work._stream

        async def half(answer: Any) -> AsyncIterator[bytes]:
            for_the_first_chunk = at_occurrence(1, dying)
            async for chunk in stream(answer):
                yield chunk
                for_the_first_chunk()

        offered_work._stream = half
        return
    original = networked_client.join

    class View:
        def __init__(self, view: Any) -> None:
            self._view = view

        def __getattr__(self, name: str) -> Any:
            return getattr(self._view, name)

        def task(self, offer: Any) -> None:
            if activity == "offered":
                dying()
            self._view.task(offer)

        def activity(self, text: str) -> None:
            if text.split()[0] == activity:
                dying()
            self._view.activity(text)

    networked_client.join = lambda options, view: original(options, View(view))  # type: ignore[assignment,arg-type]


def client_works_after(file: str, number: int = 1) -> None:
    """Begin the n-th work only once the test has created a file; meanwhile the client sends heartbeats."""
    from fedge.net import offered_work

    original = offered_work.respond
    waiting = at_occurrence(number, lambda: wait_for(file))

    def respond(*args: Any) -> Any:
        waiting()
        return original(*args)

    offered_work.respond = respond


def client_reconnects_after(file: str) -> None:
    """Connect once, and again only after the test has created a file."""
    from fedge.experiment import networked_client

    original = networked_client.connect
    first = True

    async def connect(*args: Any) -> Any:
        nonlocal first
        if not first:
            await asyncio.to_thread(wait_for, file)
        first = False
        return await original(*args)

    networked_client.connect = connect
