"""A cache of runs with their records, until they change or the cache is full."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock

from fedge.report.collect import damage
from fedge.runs import Run
from fedge.view.run_entry import RunEntry, Stamp, tell_problem
from fedge.view.run_index import RunIndex

MOST_BYTES = 64 << 20
"""Limit on the stored size of the records of all cached runs; decoded, they need about ten times as much memory."""
_SIZE = 7  # index of the size of rounds.jsonl in a stamp


class LoadedRuns:
    """The most recently used runs. Thread-safe."""

    def __init__(self, index: RunIndex, most_bytes: int = MOST_BYTES) -> None:
        self._index, self._most_bytes = index, most_bytes
        self._runs: OrderedDict[bytes, tuple[Stamp, Run]] = OrderedDict()
        self._lock = Lock()

    def get(self, entry: RunEntry) -> Run:
        """Return a run in the state of its entry."""
        with self._lock:
            known = self._runs.pop(entry.folder, None)
            if known is None or known[0] != entry.stamp:
                known = entry.stamp, Run(self._index.folder(entry))
            self._runs[entry.folder] = known
            while len(self._runs) > 1 and sum(stamp[_SIZE] for stamp, _ in self._runs.values()) > self._most_bytes:
                self._runs.popitem(last=False)
            return known[1]

    def readable(self, entries: Iterable[RunEntry]) -> tuple[list[tuple[RunEntry, Run]], list[tuple[RunEntry, str]]]:
        """Return the runs that can be read in full, and the reason for each of the others."""
        runs, left_out = [], []
        for entry in entries:
            run = self.get(entry)
            problem = entry.problem
            if problem is None and (found := damage(run, lambda run: (run.rounds, run.clients, run.edge))):
                problem = tell_problem(found, run.path)
            if problem is None:
                runs.append((entry, run))
            else:
                left_out.append((entry, problem))
        return runs, left_out
