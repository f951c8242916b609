"""Watches the files of all runs while there are readers, and publishes changes."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import Any

from fedge.core.errors import FedgeError
from fedge.runs import Cursor, follow
from fedge.runs.files import STATUS
from fedge.runs.last_events import EventCursor
from fedge.view.histories import Histories
from fedge.view.news import News
from fedge.view.run_entry import RunEntry, status_of
from fedge.view.run_index import Entries, IndexChange, RunIndex
from fedge.view.server_details import new_events, read_status

_EVERY_S = 0.4
_SHARE = 5  # scanning takes at most one part in this many of the time
_POLL_S = 10.0  # seconds for which a reader counts as present after a poll

_LOG = logging.getLogger(__name__)

Item = tuple[str, dict[str, Any]]


class Watcher:
    """Finds changes in the runs of an index."""

    def __init__(self, index: RunIndex, histories: Histories, news: News) -> None:
        self._index, self._histories, self._news = index, histories, news
        self._cursors: dict[str, Cursor] = {}
        self._events: dict[str, EventCursor] = {}
        self._statuses: dict[str, str] = {}
        self._published: dict[str, Any] = {}
        self._polled_s = 0.0
        self._seen: Entries | None = None

    def polled(self) -> None:
        """Record that a reader has polled."""
        self._polled_s = time.monotonic()
        self._news.wanted.set()

    async def run(self) -> None:
        """Watch until cancelled; read nothing while there are no readers."""
        while True:
            await self._news.wanted.wait()
            if not self._news.num_readers and time.monotonic() - self._polled_s > _POLL_S:
                self._news.wanted.clear()
                continue
            began = time.monotonic()
            try:
                for kind, data in await asyncio.to_thread(self.look):
                    await self._news.publish(kind, data)
            except Exception:  # otherwise pages would stop updating without any sign
                _LOG.exception("watching runs failed, which is a defect of Fedge; trying again")
            await asyncio.sleep(max(_EVERY_S, _SHARE * (time.monotonic() - began)))

    def look(self) -> list[Item]:
        """Return the changes since the last call; on the first call, since the runs that a page has shown."""
        if self._seen is None and self._index.entries:
            self._seen = self._index.entries
        entries = self._index.scan()
        change = IndexChange.between(entries if self._seen is None else self._seen, entries)
        self._seen = entries
        news: list[Item] = []
        if change.added or change.removed:
            news.append(("runs", {"added": change.added, "removed": change.removed}))
        for key in change.removed:
            for known in (self._cursors, self._events, self._statuses, self._published):
                known.pop(key, None)
        written = (*change.changed, *change.added)
        for key in written:
            news += self._records(entries[key])
        news += self._changed_statuses(frozenset(written))
        told = {data.get("key") for _, data in news}  # their rows are fetched anyway after this call
        sparks = [key for key in self._histories.refresh(entries.values()) if key not in told]
        if sparks:
            news.append(("sparks", {"keys": sparks}))
        return news

    def _records(self, entry: RunEntry) -> list[Item]:
        """Return the new records of a changed run; all that a reader may lack, if the run was not followed before."""
        before = self._cursors.get(entry.key)
        self._statuses[entry.key] = status = status_of(entry, self._index.root)
        if entry.problem is not None:
            return [("run", {"key": entry.key, "status": status, "problem": entry.problem})]
        try:
            found = follow(self._index.folder(entry), before)
        except FedgeError as error:
            return [("run", {"key": entry.key, "status": "damaged", "problem": str(error)})]
        self._cursors[entry.key] = found.cursor
        row = {"key": entry.key, "status": status, "round": entry.round, "last": entry.last}
        data = {
            "key": entry.key,
            "from": None if before is None else before._asdict(),
            "to": found.cursor._asdict(),
            "restarted": found.restarted,
            "records": [] if before is None else found.records,
        }
        return [("records", data), ("run", row)]

    def _changed_statuses(self, written: frozenset[str]) -> list[Item]:
        """Yield runs that started or ended without new records, and the changes of servers.

        A server that was followed or has just written is also read after its run is complete, because its last clients
        leave then.
        """
        news: list[Item] = []
        for key, entry in self._index.entries.items():
            served = entry.networked and (key in written or key in self._events)
            if not served and entry.summary is not None and self._statuses.get(key) in (None, "complete"):
                continue
            status = status_of(entry, self._index.root)
            if self._statuses.get(key) not in (None, status):
                news.append(("run", {"key": key, "status": status, "round": entry.round, "last": entry.last}))
            self._statuses[key] = status
            if entry.networked and status != "damaged":
                news += self._server(entry)
        return news

    def _server(self, entry: RunEntry) -> list[Item]:
        folder = self._index.folder(entry)
        data: dict[str, Any] = {"key": entry.key}
        with suppress(FedgeError):
            status = read_status(folder / STATUS)
            if status != self._published.get(entry.key):
                self._published[entry.key] = data["status"] = status
        events, self._events[entry.key] = new_events(folder, self._events.get(entry.key))
        if events:
            data["events"] = events
        return [("server", data)] if len(data) > 1 else []
