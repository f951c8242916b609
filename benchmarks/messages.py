"""Speed of messages relative to their checksum, and memory of a checkpoint: `python -m benchmarks.messages`.

A message of 25 MB is packed, cut into chunks, unpacked and read in chunks of 1 MiB, each compared with `zlib.crc32` of
the same bytes in the same turn, which is an upper bound of the speed. `unpack` gets the message once as bytes, which
are copied into aligned memory, and once in aligned memory, where it is used without a copy.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.measure import interleaved, python, ratios
from fedge.core import message
from fedge.core.layout import Tree
from fedge.core.placement import PIECE_BYTES, allocate
from fedge.engines.memory import keep_freed_memory

_MB = 25
_CHECKPOINT_MB = 200
_GOAL = 0.8  # relative to the speed of zlib.crc32

_CHECKPOINT = """
import torch
from pathlib import Path
from fedge.runs.checkpoint import Checkpoint, chunks, load
from fedge.core.storage import write_atomic

def growth(act):
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = status("VmRSS")
    kept = act()
    return status("VmHWM") - before

def status(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

file = Path({file!r})
checkpoint = Checkpoint({{"x": torch.ones({num_values})}}, {{}}, {{}}, 0)
print(growth(lambda: write_atomic(file, chunks(checkpoint))), growth(lambda: load(file)))
"""


def run() -> dict[str, object]:
    """Return speeds in GB/s, ratios to crc32 as medians over turns, and MB of memory in addition to the state."""
    torch.set_num_threads(1)
    keep_freed_memory()  # as in a server and in every engine
    meta, tree = message.NoMeta(), {"x": torch.randn(_MB * 250_000 - 10), "t": torch.ones(10)}
    data = message.pack(meta, tree)
    lying = allocate(len(data)).numpy().data
    lying[:] = data
    candidates: dict[str, Callable[[], object]] = {
        "crc32": lambda: zlib.crc32(data),
        "pack": lambda: message.pack(meta, tree),
        "chunks": lambda: sum(len(piece) for piece in message.chunks(meta, tree)),
        "unpack": lambda: message.unpack(data, message.NoMeta),
        "unpack, aligned": lambda: message.unpack(lying, message.NoMeta),
        "Reader": lambda: _read(data),
    }
    seconds = interleaved(candidates, repeats=31)
    return {
        "gb_per_s": {name: round(len(data) / statistics.median(times) / 1e9, 2) for name, times in seconds.items()},
        "of_crc32": {name: round(ratio, 2) for name, ratio in ratios(seconds, "crc32").items()},
        "goal": _GOAL,
        "checkpoint_mb": _checkpoint_memory(),
    }


def _read(data: bytes) -> tuple[message.NoMeta, Tree]:
    reader, view = message.Reader(message.NoMeta), memoryview(data)
    for start in range(0, len(data), PIECE_BYTES):
        reader.feed(view[start : start + PIECE_BYTES])
    return reader.finish()


def _checkpoint_memory() -> dict[str, float]:
    """Return the largest growth of a process's memory while it writes a checkpoint, and while it reads it."""
    with tempfile.TemporaryDirectory() as folder:
        code = _CHECKPOINT.format(file=str(Path(folder) / "file"), num_values=_CHECKPOINT_MB * 250_000)
        written, read = (round(int(number) * 1024 / 1e6, 1) for number in python(code).split())
    return {"size": _CHECKPOINT_MB, "to write": written, "to read": read}


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
