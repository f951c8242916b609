"""The `pool` engine: `block` on several worker processes, with bit-identical results.

Workers are forked, so they inherit data, model and kernels without loading or sending them. What changes goes through
shared memory: one arena holds what all tasks of a call share, and every task in flight has its own arena, a slot, for
its inputs and results. Only the parent reads and writes private state, so a worker that dies leaves nothing half done:
another repeats its task.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import msgspec
import torch

from fedge.core.errors import TrainingError
from fedge.core.layout import Tree
from fedge.core.machine import die_with_parent, inherit_memory, leaving_garbage
from fedge.core.placement import Placements, end_of
from fedge.engines import tasks
from fedge.engines.arena import Arena
from fedge.engines.blocks import Content
from fedge.engines.both_sides import BothSides
from fedge.engines.kernels.assemble import Batched
from fedge.engines.memory import keep_freed_memory
from fedge.engines.stall_detection import Silence
from fedge.engines.task_queue import STALL_S, TASKS_PER_WORKER, Task, TaskQueue
from fedge.engines.tasks import Failure, Meta

_FORK = get_context("fork")


class _Call(msgspec.Struct, array_like=True):
    """A request to a worker; the tensors are in the arenas."""

    kind: str
    meta: dict[str, Any]
    shared: Placements
    slot: int
    tensors: Placements


class _Result(msgspec.Struct, array_like=True, tag=True):
    """A worker's result; the tensors are in the slot."""

    meta: dict[str, Any]
    tensors: Placements


@dataclass
class _Task(Task):
    shared: Placements
    slot: int
    tensors: Placements

    def call(self) -> bytes:
        return msgspec.msgpack.encode(_Call(self.kind, dict(self.meta), self.shared, self.slot, self.tensors))


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    task: _Task | None = None
    silence: Silence = field(init=False)

    def begin(self, task: _Task) -> None:
        assert self.process.pid is not None
        self.task, self.silence = task, Silence(self.process.pid)
        with suppress(OSError):  # the listener notices the death
            self.connection.send_bytes(task.call())

    def end(self) -> str:
        """Kill the process if it is alive, and return how it ended. It shares no lock, so killing it is always safe."""
        self.process.kill()
        self.process.join()
        self.connection.close()
        code = self.process.exitcode or 0
        self.process.close()
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


class Pool(TaskQueue[_Task]):
    """A task queue whose workers are processes of this machine."""

    def __init__(
        self,
        sides: BothSides,
        batched: Batched,
        num_rows: int,
        num_workers: int,
        notice: Callable[[str], None] = lambda text: None,
        stall_s: float = STALL_S,
    ) -> None:
        super().__init__(sides, num_rows, batched.masks, num_workers, notice, stall_s)
        self._batched = batched
        self._shared = Arena()
        self._slots = [Arena() for _ in range(TASKS_PER_WORKER * num_workers)]
        self._free: deque[int] = deque()  # slots
        self._workers: list[_Worker] = []

    def close(self) -> None:
        """End the workers and release the shared memory."""
        self._end_workers()
        for arena in (self._shared, *self._slots):
            arena.close()

    @property
    def shared_bytes(self) -> int:
        """Shared memory in use, which all processes need in addition to their private memory."""
        return sum(arena.num_bytes for arena in (self._shared, *self._slots))

    def _begin(self, kind: str, shared: Tree) -> Callable[[Meta, Tree], _Task]:
        self._free = deque(range(len(self._slots)))
        common = self._shared.put(shared)

        def make(meta: Meta, tensors: Tree) -> _Task:
            slot = self._free.popleft()
            return _Task(kind, meta, common, slot, self._slots[slot].put(tensors))

        return make

    def _open(self, task: _Task) -> Content:
        return task.outcome.meta, self._slots[task.slot].get(task.outcome.tensors)

    def _finish(self, task: _Task) -> None:
        self._free.append(task.slot)

    def _hand_out(self) -> None:
        while self._waiting and (worker := self._idle_worker()) is not None:
            worker.begin(self._waiting.popleft())

    def _idle_worker(self) -> _Worker | None:
        for worker in [worker for worker in self._workers if worker.task is None]:
            if worker.process.is_alive():
                return worker
            self._discard(worker)
        if len(self._workers) == self._num_workers:
            return None
        self._workers.append(self._start_worker())
        return self._workers[-1]

    def _listen(self) -> None:
        busy = [worker for worker in self._workers if worker.task]
        heard = wait([part for worker in busy for part in (worker.connection, worker.process.sentinel)], self._check_s)
        for worker in busy:
            if not heard:
                if self._stalled(worker.silence, "worker process", worker.task):
                    self._discard(worker, f"did not run for {self._stall_s:g} s")
            elif worker.connection in heard or worker.process.sentinel in heard:
                self._receive(worker)

    def _receive(self, worker: _Worker) -> None:
        assert worker.task
        try:
            if not worker.connection.poll():
                raise EOFError
            message = worker.connection.recv_bytes()
        except (EOFError, OSError):
            self._discard(worker)
        else:
            worker.task.outcome = msgspec.msgpack.decode(message, type=_Result | Failure)
            worker.task = None

    def _discard(self, worker: _Worker, why: str | None = None) -> None:
        """Remove a dead or stalled worker; another one starts when there is a task for it."""
        self._workers.remove(worker)
        end, task = worker.end(), worker.task
        if task is None:
            self._notice(f"engine: an idle worker process {end}; another takes its place")
        else:
            self._lose(task, "a worker process", why or end)

    def _start_worker(self) -> _Worker:
        ours, theirs = _FORK.Pipe()
        inherited = [ours, *(worker.connection for worker in self._workers)]
        process = _FORK.Process(
            target=_serve,
            args=(theirs, inherited, os.getpid(), self._sides, self._batched, self._shared, self._slots),
            daemon=True,  # ends with this process at the latest
        )
        try:
            with _forking(), leaving_garbage():
                process.start()
        except OSError as error:
            ours.close()
            raise TrainingError(
                f"expected to start worker process {len(self._workers) + 1} of {self._num_workers}, "
                f"got: {error.strerror or error}; lower engine.workers"
            ) from error
        finally:
            theirs.close()  # so that the pipe closes when the worker ends
        return _Worker(process, ours)

    def _end_workers(self) -> None:
        while self._workers:
            self._workers.pop().end()


@contextmanager
def _forking() -> Iterator[None]:
    """Block Ctrl-C until a new worker ignores it, and silence Python's warning about forking with threads.

    Python warns because locks held by other threads stay locked in the child. A worker takes no lock that they could
    hold: it computes on one thread, communicates only with its parent, prints nothing, and exits without cleaning up.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(
    connection: Connection,
    inherited: Sequence[Connection],
    parent: int,
    sides: BothSides,
    batched: Batched,
    common: Arena,
    slots: Sequence[Arena],
) -> None:
    """The main loop of a worker, until it or its parent ends."""
    try:
        _settle_in(inherited, parent)
        while True:
            call = msgspec.msgpack.decode(connection.recv_bytes(), type=_Call)
            connection.send_bytes(_work(call, sides, batched, common, slots[call.slot]))
    finally:
        os._exit(0)  # do not flush or tear down inherited objects: they are the parent's


def _settle_in(inherited: Sequence[Connection], parent: int) -> None:
    inherit_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent ends this one
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent(parent)
    for other in inherited:  # while one is open, a worker would not notice that the parent is gone
        other.close()
    keep_freed_memory()
    torch.set_num_threads(1)


def _work(call: _Call, sides: BothSides, batched: Batched, common: Arena, slot: Arena) -> bytes:
    try:
        shared, tensors = common.get(call.shared), slot.get(call.tensors)
        meta, found = tasks.perform(call.kind, sides, batched, shared, call.meta, tensors)
        return msgspec.msgpack.encode(_Result(dict(meta), slot.put(found, end_of(call.tensors))))
    except BaseException as error:  # including exceptions that end a process: the parent must be told
        return msgspec.msgpack.encode(Failure.of(error))
