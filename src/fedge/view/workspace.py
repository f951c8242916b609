"""The state shared by all request handlers: one folder of runs, its index and its caches."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from threading import Lock

from fedge.core.errors import ConfigError, RunError
from fedge.runs import Run
from fedge.view.histories import Histories
from fedge.view.loaded_runs import LoadedRuns
from fedge.view.news import News
from fedge.view.notes import Notes
from fedge.view.run_entry import RunEntry
from fedge.view.run_index import RunIndex
from fedge.view.run_rows import RunTable
from fedge.view.selection import RunSelection
from fedge.view.vega_bundle import VegaBundle
from fedge.view.watcher import Watcher

MOST_COMPARED = 500
"""Maximum number of runs whose records one request reads. Larger requests are refused, not sampled."""
_FRESH_S = 0.5
_SHARE = 20  # scanning takes at most one part in this many of the time


class Workspace:
    """A folder of runs, as served by the page."""

    def __init__(self, root: Path) -> None:
        self.index = RunIndex(root)
        self.root = self.index.root
        self.notes = Notes(self.root)
        self.histories = Histories(self.index)
        self.table = RunTable(self.index, self.notes, self.histories)
        self.loaded = LoadedRuns(self.index)
        self.bundle = VegaBundle()
        self.news = News()
        self.watcher = Watcher(self.index, self.histories, self.news)
        self.shown = asyncio.Event()  # set once a page has been sent
        self._lock = Lock()
        self._stale_s = 0.0

    async def note_shown(self) -> None:
        self.shown.set()

    def refresh(self) -> None:
        """Update the index, unless it was just updated; a large folder is scanned less often."""
        with self._lock:
            began = time.monotonic()
            if began >= self._stale_s:
                self.index.scan()
                now = time.monotonic()
                self._stale_s = now + max(_FRESH_S, _SHARE * (now - began))

    def entry(self, key: str) -> RunEntry:
        """Return a run by its key. Raises RunError."""
        self.refresh()
        if key not in self.index.entries:
            raise RunError(f"no run with the key {key!r} in this folder: it was moved or removed; go back to Runs")
        return self.index.entries[key]

    def folder(self, entry: RunEntry) -> Path:
        """Return a run's directory. Raises RunError if a file in it is a link or a pipe, which must not be opened."""
        if entry.odd:
            raise RunError(f"{entry.path}: {entry.problem}")
        return self.index.folder(entry)

    def compared(self, wanted: RunSelection) -> tuple[list[tuple[RunEntry, Run]], list[tuple[RunEntry, str]]]:
        """Return the selected runs with their records, and why the others cannot be read. Raises ConfigError."""
        self.refresh()
        chosen = self.table.select(wanted)
        if len(chosen) > MOST_COMPARED:
            raise ConfigError(
                f"expected at most {MOST_COMPARED} runs to compare, got {len(chosen)}; "
                "select fewer with the search or a filter"
            )
        return self.loaded.readable(chosen)
