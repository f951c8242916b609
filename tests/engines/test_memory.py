"""Freed memory, tested in a fresh interpreter because the settings are per process."""

from benchmarks.measure import python

_FREE = """
from benchmarks.process_use import memory
from fedge.engines.memory import keep_freed_memory, return_freed_memory
{setting}
def mb():
    return memory()["rss"] / 1e6
before = mb()
blocks = [b"\\1" * 100_000 for _ in range(1000)]
kept = blocks[::100]
del blocks
freed = mb()
return_freed_memory()
print(freed - before, mb() - before)
"""


def test_freed_memory_is_kept_until_it_is_returned() -> None:
    freed, returned = map(float, python(_FREE.format(setting="keep_freed_memory()")).split())
    assert freed > 80  # of 100 MB: one block in a hundred is above the others
    assert returned < 20
