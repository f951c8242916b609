"""Blocks of clients on a Ray cluster: what `block` does, on several machines, with the same result bit for bit.

Workers are actors. The clients' data lies once on each node, in Ray's object store, where all workers of the node read
it without a copy; so does what all tasks of a call share. All else travels with the task. Private state is read and
written by the driver alone. So a worker that is lost, or a node with all its workers, leaves nothing half done: others
do their tasks again.

Algorithms and models travel as code, by Ray's cloudpickle: a cluster is trusted.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedge.client.client_side import ClientSide
from fedge.core.errors import ConfigError, ModelError, TrainingError
from fedge.core.layout import Tree
from fedge.core.server_side import ServerSide
from fedge.core.userfile import adopt, loaded_files
from fedge.data.clients import Clients, Samples
from fedge.engines import tasks
from fedge.engines.blocks import Content
from fedge.engines.both_sides import BothSides
from fedge.engines.kernels.assemble import Batched, assemble
from fedge.engines.memory import keep_freed_memory
from fedge.engines.silence import Silence
from fedge.engines.task_queue import MOST_LOSSES, STALL_S, Task, TaskQueue
from fedge.engines.tasks import Failure, Meta

Arrays = Mapping[str, np.ndarray]
"""A tree as it travels: Ray hands arrays out where they lie, read-only."""

_PATIENCE_S = 60.0  # for a worker to start while none is at work, before a person is told
_ANSWER_S = 10.0  # for a cluster to take a call
_ALIGNMENT = 64  # as torch allocates: kernels may sum in an order that depends on alignment


@dataclass
class _Task(Task):
    shared: Any  # a reference, as all that is Any here, but for actors
    arrays: Arrays


@dataclass(eq=False)
class _Worker:
    """An actor that is idle (nothing is due), at a task, or asked whether it lives (something is due, but no task)."""

    actor: Any
    due: Any = None  # what it will say next
    task: _Task | None = None
    started: bool = False
    heard: bool = False  # just now: it lives
    silence: Silence | None = None  # of an actor on the driver's own node: processes of others cannot be looked at

    @property
    def asked(self) -> bool:
        return self.due is not None and self.task is None

    def ask(self) -> None:
        self.due = self.actor.introduce.remote()


class Ray(TaskQueue[_Task]):
    """Workers are actors.

    They run on the cluster that this process has joined, else on one that RAY_ADDRESS names or that `ray start` has
    started on this machine, else on one that starts and ends with them.
    """

    def __init__(
        self,
        sides: BothSides,
        num_rows: int,
        num_workers: int,
        notice: Callable[[str], None] = lambda text: None,
        stall_s: float = STALL_S,
    ) -> None:
        self._ray = _need_ray()
        super().__init__(sides, num_rows, _batched(sides).masks, num_workers, notice, stall_s)
        self._connected = False  # to a cluster, by this engine
        self._make_actor: Callable[[], Any] | None = None  # known once there is a cluster that has the job
        self._workers: list[_Worker] = []
        self._num_failures = 0  # of workers in a row that did not start

    def close(self) -> None:
        """End the workers, and leave the cluster if this engine joined it; one that it started ends."""
        self._end_workers()
        self._make_actor = None
        if self._connected:
            self._ray.shutdown()
            self._connected = False

    def _begin(self, kind: str, shared: Tree) -> Callable[[Meta, Tree], _Task]:
        self._num_failures = 0
        if self._make_actor is None:
            self._make_actor = self._settle()
        common = self._ray.put(_arrays(shared))
        return lambda meta, tensors: _Task(kind, meta, common, _arrays(tensors))

    def _open(self, task: _Task) -> Content:
        meta, arrays = task.outcome
        return meta, _tree(arrays)

    def _settle(self) -> Callable[[], Any]:
        """Find a cluster and put the job into its object store; returns what makes an actor that has it."""
        ray = self._ray
        if not ray.is_initialized():
            self._connected = True
            _connect(ray, self._num_workers)
        num_cpus = ray.cluster_resources().get("CPU", 0)
        if num_cpus < self._num_workers:
            self._notice(
                f"engine: the Ray cluster has {num_cpus:g} CPUs for {self._num_workers} workers; "
                "those that get one do all the work"
            )
        files = _UserFiles(loaded_files())  # first in what is sent: workers cannot import them
        ray.util.register_serializer(Tensor, serializer=_array, deserializer=_tensor)
        try:
            data = ray.put((files, self._sides.clients.data, self._sides.test))
        finally:
            ray.util.deregister_serializer(Tensor)
        # Of these every worker has tensors of its own: modules count batches in some of theirs.
        server, clients, _ = self._sides
        parts = ray.put((files, server, {**clients._asdict(), "data": None, "kept": None}))
        make = ray.remote(num_cpus=1)(_Actor).remote
        return lambda: make(parts, data)

    def _hand_out(self) -> None:
        """Give tasks to workers that live, of the others ask as many whether they do, and start what is missing.

        A task is given to none that was idle for a while: it may be lost, and the task would be blamed for it.
        """
        for worker in self._workers:
            if worker.heard and self._waiting:
                task = worker.task = self._waiting.popleft()
                worker.due = worker.actor.perform.remote(task.kind, task.shared, task.meta, task.arrays)
            worker.heard = False
        num_asked = sum(worker.asked and worker.started for worker in self._workers)
        for worker in [each for each in self._workers if each.due is None][: max(0, len(self._waiting) - num_asked)]:
            worker.ask()
        # One that is starting may wait for a CPU for ever: it stands in for another new one, not for an idle one.
        num_missing = len(self._waiting) - sum(worker.asked for worker in self._workers)
        for _ in range(min(num_missing, self._num_workers - len(self._workers))):
            assert self._make_actor is not None
            self._workers.append(_Worker(self._make_actor()))
            self._workers[-1].ask()

    def _listen(self) -> None:
        due = {worker.due: worker for worker in self._workers if worker.due is not None}
        started = any(worker.started for worker in due.values())
        heard, _ = self._ray.wait(list(due), timeout=self._check_s if started else _PATIENCE_S)
        if not heard and not started:
            self._notice(f"engine: no worker has started for {_PATIENCE_S:g} s; does the Ray cluster have a CPU free?")
        if not heard:
            for worker in due.values():
                if worker.silence and self._stalled(worker.silence, "Ray worker process", worker.task):
                    with suppress(OSError):  # a stopped process would not obey Ray, and keep its CPU
                        os.kill(worker.silence.pid, signal.SIGKILL)
                    self._bury(worker, f"did not run for {self._stall_s:g} s")
        for reference in heard:
            self._hear(due[reference])

    def _hear(self, worker: _Worker) -> None:
        kinds = self._ray.exceptions
        try:
            said = self._ray.get(worker.due)
        except (
            kinds.RayActorError,
            kinds.NodeDiedError,
            kinds.ObjectLostError,
            kinds.OutOfMemoryError,
            kinds.WorkerCrashedError,
        ) as error:
            self._bury(worker, _reason(error))
            return
        if worker.task:
            worker.task.outcome = said
        else:
            versions, node, pid = said
            _check_versions(versions)
            worker.silence = Silence(pid) if node == _node() else None
            self._num_failures = 0
        worker.due = worker.task = None
        worker.started = worker.heard = True

    def _bury(self, worker: _Worker, why: str) -> None:
        """Do without a worker that is lost; another takes its place when there is something to do."""
        self._end(worker)
        if worker.task is not None:
            self._lose(worker.task, "a Ray worker", f"was lost ({why})")
            return
        end = "was lost while idle" if worker.started else "did not start"
        self._notice(f"engine: a Ray worker {end} ({why}); another takes its place")
        self._num_failures += not worker.started
        if self._num_failures >= MOST_LOSSES:
            raise TrainingError(
                f"expected Ray workers to start, but {MOST_LOSSES} in a row did not; the last: {why}. "
                "Every node needs memory for the model, and the same Python packages as this one"
            )

    def _end(self, worker: _Worker) -> None:
        """Also one that is lost: it may be out of reach only."""
        self._workers.remove(worker)
        self._ray.kill(worker.actor)

    def _end_workers(self) -> None:
        while self._workers:
            self._end(self._workers[-1])


class _UserFiles:
    """Users' files of the driver; unpickled in a worker, they are loaded there."""

    def __init__(self, files: list[tuple[str, dict[str, bytes]]]) -> None:
        self._files = files

    def __reduce__(self) -> tuple[Any, ...]:
        return adopt, (self._files,)


class _Actor:
    """A worker, where it works."""

    def __init__(
        self, parts: tuple[Any, ServerSide, dict[str, Any]], data: tuple[Any, Clients, Samples | None]
    ) -> None:
        keep_freed_memory()
        torch.set_num_threads(1)
        _, server, clients = parts
        _, samples, test = data
        self._sides = BothSides(server, ClientSide(**{**clients, "data": samples}), test)
        self._batched = _batched(self._sides)

    def introduce(self) -> tuple[dict[str, str], str, int]:
        return _versions(), _node(), os.getpid()

    def perform(self, kind: str, shared: Arrays, meta: Meta, arrays: Arrays) -> tuple[Meta, Arrays] | Failure:
        try:
            meta, found = tasks.perform(kind, self._sides, self._batched, _tree(shared), meta, _tree(arrays))
            return meta, _arrays(found)
        except BaseException as error:  # also what would end a process: the driver should hear of it
            return Failure.of(error)


def _batched(sides: BothSides) -> Batched:
    """The same in the driver, which makes blocks that suit it, and in every worker."""
    found = assemble(sides.clients.network, sides.clients.probe())
    if isinstance(found, str):
        raise ModelError(f"expected a model that can run in blocks, but {found}; set engine.name = loop")
    return found


def _arrays(tree: Tree) -> Arrays:
    return {name: _array(value) for name, value in tree.items()}


def _tree(arrays: Arrays) -> Tree:
    return {name: _tensor(value) for name, value in arrays.items()}


def _array(value: Tensor) -> np.ndarray:
    return value.detach().numpy()


def _tensor(array: np.ndarray) -> Tensor:
    """Where the array lies, if kernels sum there as they do anywhere: Ray aligns all but small ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that torch would let one write to it: nothing changes its inputs here
        value = torch.from_numpy(array)
    return value if value.data_ptr() % _ALIGNMENT == 0 else value.clone()


def _reason(error: Exception) -> str:
    """The gist of what Ray has to say, which is several paragraphs of advice."""
    return str(error).strip().splitlines()[-1].strip().partition(". ")[0].rstrip(".")


def _node() -> str:
    """Return the id of the node that this process runs on."""
    return str(_need_ray().get_runtime_context().get_node_id())


def _versions() -> dict[str, str]:
    """Of what decides on the bits."""
    return {"fedge": getattr(sys.modules["fedge"], "__version__", "unknown"), "torch": str(torch.__version__)}


def _check_versions(found: Mapping[str, str]) -> None:
    for name, version in _versions().items():
        if found[name] != version:
            raise ConfigError(
                f"engine.name: ray needs the same {name} on every node, expected {version} as here, "
                f"but a node has {found[name]}; install {name} {version} there"
            )


def _need_ray() -> Any:
    """The package, or what to install."""
    try:
        return import_module("ray")
    except ImportError:
        raise ConfigError(
            "engine.name: ray needs the package ray, which is not installed; pip install 'fedge[ray]'"
        ) from None


def _connect(ray: Any, num_workers: int) -> None:
    """Join a cluster, or start one if there is none."""
    address = os.environ.get("RAY_ADDRESS", "")
    if address not in ("", "auto", "local"):
        _check_address(address)
    quiet = {"log_to_driver": False, "logging_level": "error"}
    try:
        ray.init(num_cpus=num_workers, include_dashboard=False, **quiet)
    except ValueError:  # a cluster that runs has the CPUs that it has
        try:
            ray.init(**quiet)
        except ConnectionError as error:
            raise ConfigError(
                f"engine.name: ray expected the cluster that `ray start` started here, got: {error}; "
                "start it again, or run `ray stop` to do without it"
            ) from error


def _check_address(address: str) -> None:
    """Ray itself would try for many minutes."""
    host, _, port = address.rpartition(":")
    if "://" in address:  # Ray's client: its objects lie in another machine's memory
        problem = "this is another kind of address"
    else:
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
            return
        except (OSError, ValueError) as error:
            problem = str(error)
    raise ConfigError(
        f"RAY_ADDRESS: expected host:port of a Ray cluster that this machine is a node of, got {address} ({problem}); "
        "start the cluster, or unset RAY_ADDRESS to have one started here"
    )
