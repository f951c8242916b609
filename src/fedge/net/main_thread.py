"""Lets the event loop's thread hand work to the main thread, which trains."""

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
        """Do what is asked for until a future is done; raise what it raises."""
        done.add_done_callback(lambda _: self._jobs.put(None))
        while (job := self._jobs.get()) is not None:
            job()
            del job  # else it would keep what it worked on, a model and an answer, until there is another one
        done.result()

    async def call(self, work: Callable[[], T]) -> T:
        """Let the main thread do something, and return its result."""
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
