"""A task queue for workers that can be lost at any moment: the common part of `pool` and `ray`.

Tasks are handed out one at a time, and results are returned in the order of the tasks, whichever finishes first. A task
whose worker is lost or stalls is repeated by another worker, and fails after three losses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from fedge.core.algorithm import Exchange, Info, Reply
from fedge.core.errors import TrainingError
from fedge.core.layout import Tree
from fedge.core.question import Question, Sums
from fedge.engines import tasks
from fedge.engines.blocks import Content
from fedge.engines.both_sides import BothSides
from fedge.engines.evaluate import evaluate_clients, evaluate_test
from fedge.engines.stall_detection import NUM_CHECKS, Silence
from fedge.engines.tasks import Failure, Meta

MOST_LOSSES = 3
STALL_S = 60.0
TASKS_PER_WORKER = 2  # tasks in flight, so that few workers wait for the next result in order


@dataclass
class Task:
    """A request to a worker, and its outcome."""

    kind: str
    meta: Meta
    num_losses: int = field(default=0, init=False)  # workers lost while performing it
    outcome: Any = field(default=None, init=False)  # a Failure, or a result for `_open`


SomeTask = TypeVar("SomeTask", bound=Task)


class TaskQueue(ABC, Generic[SomeTask]):
    """Runs exchanges in blocks of at most `num_rows` clients on `num_workers` workers, which start when needed."""

    def __init__(
        self,
        sides: BothSides,
        num_rows: int,
        masks: bool,
        num_workers: int,
        notice: Callable[[str], None],
        stall_s: float,
    ) -> None:
        """`notice` receives messages for the user, such as that a worker was replaced; `stall_s`: see `_stalled`."""
        self._sides, self._num_workers, self._notice, self._stall_s = sides, num_workers, notice, stall_s
        self.num_rows, self.masks = num_rows, masks
        self._waiting: deque[SomeTask] = deque()  # not yet given to a worker
        self._mapping = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End the workers and release their resources."""

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        return tasks.run(self._sides, self, exchanges, infos)

    def evaluate(self, question: Question, info: Info) -> dict[int, Sums]:
        return evaluate_clients(self._sides, self, question, info)

    def test(self, variables: Tree) -> Sums:
        return evaluate_test(self._sides, self, variables)

    def map(self, kind: str, shared: Tree, items: Iterable[Content]) -> Generator[Content, None, None]:
        """Yield the results of tasks of one kind, in order. Tensors are read-only and valid until the next result.

        Items are consumed a few tasks ahead. Closing the generator early ends the workers and their tasks.
        """
        if self._mapping:
            raise RuntimeError("an engine runs one `map` at a time: consume all its results, or close it")
        self._mapping = True
        under_way, upcoming = deque[SomeTask](), iter(items)
        try:
            make = self._begin(kind, shared)
            while True:
                while len(under_way) < TASKS_PER_WORKER * self._num_workers and (item := next(upcoming, None)):
                    under_way.append(make(*item))
                    self._waiting.append(under_way[-1])
                    self._hand_out()
                if not under_way:
                    return
                yield self._result(under_way[0])
                self._finish(under_way.popleft())
        finally:
            self._mapping = False
            self._waiting.clear()
            if any(task.outcome is None for task in under_way):
                self._end_workers()

    def _result(self, task: SomeTask) -> Content:
        while task.outcome is None:
            self._listen()
            self._hand_out()
        if isinstance(task.outcome, Failure):
            raise task.outcome.error()
        return self._open(task)

    @property
    def _check_s(self) -> float:
        """Seconds to wait for a message before checking whether workers have stalled."""
        return self._stall_s / NUM_CHECKS

    def _stalled(self, silence: Silence, worker: str, task: SomeTask | None) -> bool:
        """Return whether a worker has used no processor time for `stall_s`; the first silent check is reported."""
        num_checks = silence.check()
        if num_checks == 1:
            what = f" at {tasks.describe(task.kind, task.meta)}" if task else ""
            self._notice(
                f"engine: {worker} {silence.pid} is not running{what}; it will be replaced after engine.stall_s = "
                f"{self._stall_s:g} s without progress"
            )
        return num_checks >= NUM_CHECKS

    def _lose(self, task: SomeTask, worker: str, end: str) -> None:
        """Requeue a task whose worker was lost, or make it fail after too many losses."""
        what = tasks.describe(task.kind, task.meta)
        task.num_losses += 1
        if task.num_losses < MOST_LOSSES:
            self._waiting.appendleft(task)
            self._notice(f"engine: {worker} {end} at {what}; another worker repeats the task")
            return
        task.outcome = Failure.of(
            TrainingError(
                f"{what}: expected {worker} to finish, but {MOST_LOSSES} in a row were lost; the last {end}. "
                "Most likely memory has run out: lower engine.rows or engine.workers"
            )
        )

    @abstractmethod
    def _begin(self, kind: str, shared: Tree) -> Callable[[Meta, Tree], SomeTask]:
        """Prepare for tasks of one kind with this shared tree; return a function that makes a task."""

    @abstractmethod
    def _hand_out(self) -> None:
        """Give waiting tasks to idle workers. Tasks are never queued at a worker."""

    @abstractmethod
    def _listen(self) -> None:
        """Wait up to `_check_s` for a worker to answer or be lost; without either, check for stalled workers."""

    @abstractmethod
    def _open(self, task: SomeTask) -> Content:
        """Return the result of a task."""

    def _finish(self, task: SomeTask) -> None:
        """Called when the caller is done with the result."""

    @abstractmethod
    def _end_workers(self) -> None:
        """End all workers with their tasks."""
