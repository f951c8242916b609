"""Telemetry of a server run: events, status and the registry's rows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedge.core.errors import StorageError
from fedge.engines.memory import return_freed_memory
from fedge.net.assignment import Assignment, Conducted, task_rows
from fedge.net.engine import NetEngine
from fedge.net.events import EventLog
from fedge.net.hub import Hub
from fedge.net.registry import Registry
from fedge.net.status import DONE, ServerStatus, StatusFile
from fedge.net.task import ClientTask, Observer, TaskState, Transition
from fedge.net.views import ServerObserver, Value
from fedge.runs import files

_FLUSH_S = 2.0
_EVENT_OF = {
    "accepted": "accept",
    "declined": "decline",
    "fetching": "fetch",
    "working": "work",
    "waiting": "finish",
    "uploading": "upload",
    "settled": "receive",
    "rejected": "reject",
    "late": "late",
    "lost": "drop",
    "withdrawn": "withdraw",
    "failed": "fail",
    "committed": "commit",
    "void": "void",
}
"""Logged events by the state that a transition leads to."""


class RunTelemetry:
    """Logs events, publishes the status and writes the registry. Call `watch` first."""

    _hub: Hub
    _engine: NetEngine

    def __init__(
        self,
        path: Path,
        run: str,
        num_rounds: int,
        registry: Registry,
        log: EventLog,
        observer: ServerObserver | None,
        on_transition: Observer,
    ) -> None:
        self._run_id, self._num_rounds, self._registry, self._log = run, num_rounds, registry, log
        self._observer, self._on_transition = observer, on_transition
        self._status_file, self._writing_status = StatusFile(path / files.STATUS), asyncio.Lock()
        self._disk_problem = ""  # the last one reported
        self.complete = False  # the run is complete, and clients have been told

    def watch(self, hub: Hub, engine: NetEngine) -> None:
        """Set the hub and the engine to report on."""
        self._hub, self._engine = hub, engine

    def append(self, event: str, **fields: Value) -> None:
        """Log an event and pass it to the observer."""
        told = {"round": self._engine.round_number or None, **fields}
        self._log.append(event, **told)
        if self._observer:
            self._observer.event(event, **told)

    def note_transition(self, transition: Transition) -> None:
        """Log a change of a task or of the round."""
        event, client = _EVENT_OF.get(transition.after), transition.client
        if event is not None:
            exchange = max(self._engine.machine.exchange - 1, 0)
            spent = {} if client is None else _size_and_seconds(self._hub.task_of(client))
            self.append(event, client=client, exchange=exchange, **spent, reason=transition.reason or None)
        self._on_transition(transition)

    def record(self, assignment: Assignment, conducted: Conducted) -> None:
        """Record the outcome of each task in the registry."""
        for row in task_rows(assignment, conducted, time.time()):
            self._registry.record(row)

    def _status(self) -> ServerStatus:
        hub, engine = self._hub, self._engine
        state = "waiting" if engine.waiting_for else str(engine.machine.state)
        asked, accepted, received = hub.progress
        return ServerStatus(
            run=self._run_id,
            state=DONE if self.complete else state,
            round=engine.round_number,
            num_rounds=self._num_rounds,
            exchange=max(0, engine.machine.exchange - 1),
            attempt=engine.attempt,
            waiting_for=engine.waiting_for,
            deadline_s=engine.seconds_left,
            clients=dict(hub.counts()),
            not_joined=hub.problems,
            asked=asked,
            accepted=accepted,
            received=received,
            bytes_down=hub.bytes_down,
            bytes_up=hub.bytes_up,
        )

    async def publish(self) -> None:
        """Write the status every second, until cancelled."""
        while True:
            await self.write_status()
            await asyncio.sleep(1.0)

    async def write_status(self) -> None:
        """Write the current status and pass it to the observer."""
        async with self._writing_status:
            status = self._status()
            if self._observer:
                self._observer.status(status)
            await self._try_to_write(partial(self._status_file.write, status))

    async def flush(self) -> None:
        """Flush the registry and return freed memory every few seconds, until cancelled."""
        before = 0
        while True:
            await asyncio.sleep(_FLUSH_S)
            await self._try_to_write(self._registry.flush)
            moved = self._hub.bytes_down + self._hub.bytes_up
            if moved != before:  # payload buffers have been freed
                await asyncio.to_thread(return_freed_memory)
            before = moved

    async def _try_to_write(self, write: Callable[[], None]) -> None:
        """Write something that can wait. A full disk is only logged, as it will also stop the rounds."""
        try:
            await asyncio.to_thread(write)
            self._disk_problem = ""
        except StorageError as error:
            if str(error) != self._disk_problem:
                self.append("disk", reason=str(error))
            self._disk_problem = str(error)


def _size_and_seconds(task: ClientTask | None) -> dict[str, Value]:
    """Return the size of an answer that has arrived, and the seconds that the client took."""
    if task is None or task.state not in (TaskState.SETTLED, TaskState.REJECTED):
        return {}
    spent = task.seconds()
    return {
        "bytes": task.num_bytes,
        "down_s": round(spent.down, 6),
        "compute_s": round(spent.compute, 6),
        "up_s": round(spent.up, 6),
    }
