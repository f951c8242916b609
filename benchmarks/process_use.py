"""Memory and processor time of a process, from /proc. Requires only the standard library."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def peak_memory(pid: int) -> Iterator[dict[str, int]]:
    """Fill a dictionary with the peak memory of a process during the block, sampled every 20 ms."""
    found, over = memory(pid), threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            with suppress(OSError):  # the process has ended
                for kind, value in memory(pid).items():
                    found[kind] = max(found[kind], value)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def memory(pid: int | None = None) -> dict[str, int]:
    """Return the memory of a process, or of this one, in bytes.

    "rss" are its resident bytes, "pss" the same with pages that n processes share counted as 1/n. After a fork, prefer
    "rss": "pss" changes when another process with the same pages starts or ends.
    """
    lines = Path(f"/proc/{pid or 'self'}/smaps_rollup").read_text().splitlines()[1:]
    values = {line.split(":")[0].lower(): int(line.split()[1]) * 1024 for line in lines}
    return {kind: values[kind] for kind in ("rss", "pss")}


def processor_s(pid: int) -> float:
    """Return the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def num_descriptors(pid: int) -> int:
    """Return the number of open files and sockets of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
