"""Workers that can be lost at any moment: what `pool` and `ray` share.

Tasks are handed out one at a time, and their results are taken in the order of the tasks, whichever was done first. One
whose worker is lost, or has stalled, is done again by another, and given up when it has cost three.
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
from fedge.engines.silence import NUM_CHECKS, Silence
from fedge.engines.tasks import Failure, Meta

MOST_LOSSES = 3
STALL_S = 60.0
TASKS_PER_WORKER = 2  # under way, so that few wait for the one whose result is due


@dataclass
class Task:
    """What a worker is asked, and what it says."""

    kind: str
    meta: Meta
    num_losses: int = field(default=0, init=False)  # of workers that were at it
    outcome: Any = field(default=None, init=False)  # a Failure, or what the engine can `_open`


SomeTask = TypeVar("SomeTask", bound=Task)


class TaskQueue(ABC, Generic[SomeTask]):
    """Runs exchanges in blocks of at most `num_rows` clients, on `num_workers` workers. They start when needed."""

    def __init__(
        self,
        sides: BothSides,
        num_rows: int,
        masks: bool,
        num_workers: int,
        notice: Callable[[str], None],
        stall_s: float,
    ) -> None:
        """`notice` is told what a person should know, such as that a worker was replaced; `stall_s`: see `_stalled`."""
        self._sides, self._num_workers, self._notice, self._stall_s = sides, num_workers, notice, stall_s
        self.num_rows, self.masks = num_rows, masks
        self._waiting: deque[SomeTask] = deque()  # those that no worker is at
        self._mapping = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End the workers, and give up what they need."""

    def run(self, exchanges: Sequence[Exchange], infos: Sequence[Info]) -> list[Reply]:
        return tasks.run(self._sides, self, exchanges, infos)

    def evaluate(self, question: Question, info: Info) -> dict[int, Sums]:
        return evaluate_clients(self._sides, self, question, info)

    def test(self, variables: Tree) -> Sums:
        return evaluate_test(self._sides, self, variables)

    def map(self, kind: str, shared: Tree, items: Iterable[Content]) -> Generator[Content, None, None]:
        """The results of tasks of one kind, in their order. Their tensors are to be read, until the next is asked for.

        Items are asked for a few tasks ahead. If it is left before its end, the workers are ended with their tasks.
        """
        if self._mapping:
            raise RuntimeError("an engine does one thing at a time: take all results of `map`, or close it")
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
        """How long to wait for a word before looking whether workers have stalled."""
        return self._stall_s / NUM_CHECKS

    def _stalled(self, silence: Silence, worker: str, task: SomeTask | None) -> bool:
        """Return whether a worker has used no processor time for `stall_s`; the first sign of it is reported."""
        num_checks = silence.check()
        if num_checks == 1:
            what = f" at {tasks.describe(task.kind, task.meta)}" if task else ""
            self._notice(
                f"engine: {worker} {silence.pid} does not run{what}; if it stays so for engine.stall_s = "
                f"{self._stall_s:g} s, it is replaced"
            )
        return num_checks >= NUM_CHECKS

    def _lose(self, task: SomeTask, worker: str, end: str) -> None:
        """Have a task done again whose worker ended so, or give it up."""
        what = tasks.describe(task.kind, task.meta)
        task.num_losses += 1
        if task.num_losses < MOST_LOSSES:
            self._waiting.appendleft(task)
            self._notice(f"engine: {worker} {end} at {what}; another does that again")
            return
        task.outcome = Failure.of(
            TrainingError(
                f"{what}: expected {worker} to finish, but {MOST_LOSSES} in a row were lost; the last {end}. "
                "As a rule memory has run out: lower engine.rows or engine.workers"
            )
        )

    @abstractmethod
    def _begin(self, kind: str, shared: Tree) -> Callable[[Meta, Tree], SomeTask]:
        """Get ready for tasks of one kind, which share this; returns what makes one of meta and tensors."""

    @abstractmethod
    def _hand_out(self) -> None:
        """Give waiting tasks to workers, as far as there are any. None is queued at a worker."""

    @abstractmethod
    def _listen(self) -> None:
        """Wait until a worker says something or is lost, for `_check_s` at most; then look for those that stalled."""

    @abstractmethod
    def _open(self, task: SomeTask) -> Content:
        """What came of a task."""

    def _finish(self, task: SomeTask) -> None:
        """The result has been taken."""

    @abstractmethod
    def _end_workers(self) -> None:
        """End them all, with the tasks that they are at."""
