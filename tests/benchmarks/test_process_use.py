import mmap
import os
import time

from benchmarks.process_use import memory, num_descriptors, peak_memory, processor_s


def test_peak_is_kept_after_memory_is_freed() -> None:
    before = memory()["rss"]
    with peak_memory(os.getpid()) as peak, mmap.mmap(-1, 128 << 20) as held:  # new pages: malloc may keep freed ones
        for place in range(0, len(held), mmap.PAGESIZE):
            held[place] = 1
        end = time.monotonic() + 10
        while peak["rss"] < before + len(held) // 2 and time.monotonic() < end:
            time.sleep(0.01)
    assert peak["rss"] > before + (64 << 20)
    assert 0 < peak["pss"] <= peak["rss"]


def test_processor_time_grows_with_work() -> None:
    before, end = processor_s(os.getpid()), time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert processor_s(os.getpid()) >= before + 0.08


def test_open_file_counts_as_descriptor() -> None:
    before = num_descriptors(os.getpid())
    with open(os.devnull):
        assert num_descriptors(os.getpid()) == before + 1
