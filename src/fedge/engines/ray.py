"""The `ray` engine: `block` on the machines of a Ray cluster, with bit-identical results.

Workers are actors. The clients' data is stored once per node, in Ray's object store, where all workers of the node read
it without a copy; so is what all tasks of a call share. Everything else is sent with the task. Only the driver reads
and writes private state, so losing a worker, or a node with all its workers, leaves nothing half done: others repeat
their tasks.

Algorithms and models are sent as code, by Ray's cloudpickle: a cluster is trusted.
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
from fedge.core.placement import ALIGNMENT
from fedge.core.server_side import ServerSide
from fedge.core.userfile import adopt, loaded_files
from fedge.data.clients import Clients, Samples
from fedge.engines import tasks
from fedge.engines.blocks import Content
from fedge.engines.both_sides import BothSides
from fedge.engines.kernels.assemble import Batched, assemble
from fedge.engines.memory import keep_freed_memory
from fedge.engines.stall_detection import Silence
from fedge.engines.task_queue import MOST_LOSSES, STALL_S, Task, TaskQueue
from fedge.engines.tasks import Failure, Meta

Arrays = Mapping[str, np.ndarray]
"""A tree as Ray transports it: Ray returns arrays read-only, without copying."""

_PATIENCE_S = 60.0  # to wait for a first worker before telling the user
_ANSWER_S = 10.0  # timeout for connecting to a cluster


@dataclass
class _Task(Task):
    shared: Any  # a Ray object reference, like every Any here except actors
    arrays: Arrays


@dataclass(eq=False)
class _Worker:
    """An actor that is idle (`due` is None), at a task, or being asked whether it is alive (`due` without a task)."""

    actor: Any
    due: Any = None  # its next answer
    task: _Task | None = None
    started: bool = False
    heard: bool = False  # it has just answered, so it is alive
    silence: Silence | None = None  # only on the driver's node: processes of other nodes cannot be observed

    @property
    def asked(self) -> bool:
        return self.due is not None and self.task is None

    def ask(self) -> None:
        self.due = self.actor.introduce.remote()


class Ray(TaskQueue[_Task]):
    """A task queue whose workers are Ray actors.

    They run on the cluster that this process has joined, else on the one named by RAY_ADDRESS or started by `ray start`
    on this machine, else on a temporary cluster that starts and ends with them.
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
        self._connected = False  # whether this engine joined the cluster
        self._make_actor: Callable[[], Any] | None = None  # set once the data is in the cluster's object store
        self._workers: list[_Worker] = []
        self._num_failures = 0  # consecutive workers that did not start

    def close(self) -> None:
        """End the workers, and leave the cluster if this engine joined it. A cluster that it started ends."""
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
        """Find a cluster, put data and model into its object store, and return a function that makes an actor."""
        ray = self._ray
        if not ray.is_initialized():
            self._connected = True
            _connect(ray, self._num_workers)
        num_cpus = ray.cluster_resources().get("CPU", 0)
        if num_cpus < self._num_workers:
            self._notice(
                f"engine: the Ray cluster has {num_cpus:g} CPUs for {self._num_workers} workers; "
                "only workers that get a CPU will run"
            )
        files = _UserFiles(loaded_files())  # sent first, because workers cannot import them
        ray.util.register_serializer(Tensor, serializer=_array, deserializer=_tensor)
        try:
            data = ray.put((files, self._sides.clients.data, self._sides.test))
        finally:
            ray.util.deregister_serializer(Tensor)
        # Every worker gets its own copy of these tensors: modules count batches in some of them.
        server, clients, _ = self._sides
        parts = ray.put((files, server, {**clients._asdict(), "data": None, "kept": None}))
        make = ray.remote(num_cpus=1)(_Actor).remote
        return lambda: make(parts, data)

    def _hand_out(self) -> None:
        """Give tasks to workers known to be alive, ping idle workers, and start missing ones.

        A worker that was idle gets no task before it has answered: if it was lost, the loss would count against the
        task.
        """
        for worker in self._workers:
            if worker.heard and self._waiting:
                task = worker.task = self._waiting.popleft()
                worker.due = worker.actor.perform.remote(task.kind, task.shared, task.meta, task.arrays)
            worker.heard = False
        num_asked = sum(worker.asked and worker.started for worker in self._workers)
        for worker in [each for each in self._workers if each.due is None][: max(0, len(self._waiting) - num_asked)]:
            worker.ask()
        # A starting worker may wait for a CPU forever: it counts as a new worker, not as an idle one.
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
                    with suppress(OSError):  # Ray cannot end a stopped process, which would keep its CPU
                        os.kill(worker.silence.pid, signal.SIGKILL)
                    self._discard(worker, f"did not run for {self._stall_s:g} s")
        for reference in heard:
            self._receive(due[reference])

    def _receive(self, worker: _Worker) -> None:
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
            self._discard(worker, _reason(error))
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

    def _discard(self, worker: _Worker, why: str) -> None:
        """Remove a lost worker; another takes its place when there is a task for it."""
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
        """End a worker, even a lost one: it may only be unreachable."""
        self._workers.remove(worker)
        self._ray.kill(worker.actor)

    def _end_workers(self) -> None:
        while self._workers:
            self._end(self._workers[-1])


class _UserFiles:
    """The driver's user files; unpickling them in a worker loads them there."""

    def __init__(self, files: list[tuple[str, dict[str, bytes]]]) -> None:
        self._files = files

    def __reduce__(self) -> tuple[Any, ...]:
        return adopt, (self._files,)


class _Actor:
    """The worker inside an actor."""

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
        except BaseException as error:  # including exceptions that end a process: the driver must be told
            return Failure.of(error)


def _batched(sides: BothSides) -> Batched:
    """Return the batched model, the same in the driver and in every worker. Raises ModelError if there is none."""
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
    """Return a tensor that shares the array's memory, or a copy if it is not aligned, as with small arrays."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that the array is not writable; nothing writes to it
        value = torch.from_numpy(array)
    return value if value.data_ptr() % ALIGNMENT == 0 else value.clone()


def _reason(error: Exception) -> str:
    """Return the last sentence of Ray's message, which is several paragraphs of advice."""
    return str(error).strip().splitlines()[-1].strip().partition(". ")[0].rstrip(".")


def _node() -> str:
    """Return the id of the node that this process runs on."""
    return str(_need_ray().get_runtime_context().get_node_id())


def _versions() -> dict[str, str]:
    """Return the versions that determine results bit by bit."""
    return {"fedge": getattr(sys.modules["fedge"], "__version__", "unknown"), "torch": str(torch.__version__)}


def _check_versions(found: Mapping[str, str]) -> None:
    for name, version in _versions().items():
        if found[name] != version:
            raise ConfigError(
                f"engine.name: ray needs the same {name} on every node, expected {version} as here, "
                f"but a node has {found[name]}; install {name} {version} there"
            )


def _need_ray() -> Any:
    """Return the ray package. Raises ConfigError if it is not installed."""
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
    except ValueError:  # an existing cluster does not accept num_cpus
        try:
            ray.init(**quiet)
        except ConnectionError as error:
            raise ConfigError(
                f"engine.name: ray expected the cluster that `ray start` started here, got: {error}; "
                "start it again, or run `ray stop` to do without it"
            ) from error


def _check_address(address: str) -> None:
    """Raise a ConfigError if no cluster answers at an address; Ray itself would retry for many minutes."""
    host, _, port = address.rpartition(":")
    if "://" in address:  # Ray Client: its objects are in another machine's memory
        problem = "this is an address of Ray Client"
    else:
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
            return
        except (OSError, ValueError) as error:
            problem = str(error)
    raise ConfigError(
        f"RAY_ADDRESS: expected host:port of a Ray cluster that includes this machine, got {address} ({problem}); "
        "start the cluster, or unset RAY_ADDRESS to have one started here"
    )
