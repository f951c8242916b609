"""Detect stalled workers: alive, but stopped by a signal or waiting forever.

A worker may compute for hours without sending a message. One that uses no processor time at all has stalled.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedge.core.machine import process_stat

NUM_CHECKS = 4
"""Checks without progress after which a worker is given up. Counting checks, not seconds, spares workers that were
suspended together with this process."""


@dataclass
class Silence:
    """Counts consecutive checks in which a local process has used no processor time."""

    pid: int
    num_checks: int = 0  # consecutive checks that found it silent
    _ticks: int | None = None

    def check(self) -> int:
        """Check the process and return the number of consecutive checks that found it silent."""
        ticks = _processor_ticks(self.pid)
        silent = ticks is not None and ticks == self._ticks
        self.num_checks, self._ticks = (self.num_checks + 1 if silent else 0), ticks
        return self.num_checks


def _processor_ticks(pid: int) -> int | None:
    """Return the processor time of a process in clock ticks; None if it is not available."""
    fields = process_stat(pid)
    # utime and stime: fields 14 and 15, of which two precede the name's ")"
    return int(fields[11]) + int(fields[12]) if fields else None
