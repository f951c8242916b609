"""Workers that no longer run, though they live: stopped by a signal, or waiting for something that never comes.

A worker may compute for hours without a word. One that uses no processor time at all has stalled.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NUM_CHECKS = 4
"""How often a worker is looked at before it is given up. Counting checks, not seconds, spares workers that were
suspended together with this process."""


@dataclass
class Silence:
    """How long a process of this machine has used no processor time."""

    pid: int
    num_checks: int = 0  # in a row that found it silent
    _ticks: int | None = None

    def check(self) -> int:
        """Look at the process; return the number of checks in a row that found it silent."""
        ticks = _processor_ticks(self.pid)
        silent = ticks is not None and ticks == self._ticks
        self.num_checks, self._ticks = (self.num_checks + 1 if silent else 0), ticks
        return self.num_checks


def _processor_ticks(pid: int) -> int | None:
    """Return the processor time of a process in clock ticks; None if the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[11]) + int(fields[12])  # utime and stime: the 14th and 15th, of which two come before ")"
