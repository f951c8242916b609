"""A queue through which the event loop's thread hands work to the main thread, which trains."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class MainThread:
    """A queue of work for the thread that calls `work_until`."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def work_until(self, done: Future[None]) -> None:
        """Run queued work until a future is done; raise the future's exception, if any."""
        done.add_done_callback(lambda _: self._jobs.put(None))
        while (job := self._jobs.get()) is not None:
            job()
            del job  # otherwise it would keep a model and an answer alive until the next job
        done.result()

    async def call(self, work: Callable[[], T]) -> T:
        """Run a function in the main thread and return its result."""
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)

        self._jobs.put(job)
        return await asyncio.wrap_future(future)
