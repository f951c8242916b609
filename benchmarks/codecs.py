"""Speed of compression and decompression: megabytes of dense float32 input per second, on one core.

The vectors have the layouts of MNIST-CNN (1.7 million parameters) and of the StackOverflow tag model (5 million).
Changes are normal; those of the moments span forty orders of magnitude, as Adam's do.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from math import prod

import numpy as np
import torch

from benchmarks.measure import interleaved
from fedge.core.codecs.chain import parse_chain
from fedge.core.codecs.codec import ChainCodec
from fedge.core.layout import Entry, Layout, Tree
from fedge.core.slots import Slot
from fedge.engines.memory import keep_freed_memory

_MODELS = {
    "mnist_cnn": ((32, 1, 5, 5), (32,), (64, 32, 5, 5), (64,), (512, 3136), (512,), (10, 512), (10,)),
    "stackoverflow": ((500, 10_000), (500,)),
}
_CHAINS: dict[str, tuple[list[str], list[str]]] = {
    "sparsify(0.6) uniq golomb": (["sparsify(0.6)", "uniq", "golomb"], []),
    "sparsify(0.9) uniq golomb": (["sparsify(0.9)", "uniq", "golomb"], []),
    "sparsify(0.6) uniq golomb, expq": (["sparsify(0.6)", "uniq", "golomb"], ["expq"]),
    "sparsify(0.9) uniq golomb, expq": (["sparsify(0.9)", "uniq", "golomb"], ["expq"]),
    "sparsify(0.99)": (["sparsify(0.99)"], []),
    "uniq": (["uniq"], []),
    "expq": (["expq"], []),
    "qsgd(8)": (["qsgd(8)"], []),
    "qsgd(2)": (["qsgd(2)"], []),
    "fp16": (["fp16"], []),
}
_SLOTS = {
    "y": Slot("params", anchor="x"),
    "m": Slot("params", anchor="m", moment=True),
    "v": Slot("params", anchor="v", moment=True),
}


def run() -> dict[str, object]:
    """Return MB/s by model, chain and direction, as medians over turns."""
    torch.set_num_threads(1)
    keep_freed_memory()
    return {model: _speeds(_layout(shapes)) for model, shapes in _MODELS.items()}


def _speeds(layout: Layout) -> dict[str, dict[str, float]]:
    candidates: dict[str, Callable[[], object]] = {}
    megabytes: dict[str, float] = {}
    for name, (up, moments) in _CHAINS.items():
        codec = ChainCodec(layout, _SLOTS, parse_chain(up), parse_chain(moments))
        upload, down = _trees(layout.num_params, moments=bool(moments))
        wire = codec.encode(upload, down, np.random.default_rng(0))
        candidates[f"{name}/encode"] = partial(codec.encode, upload, down, np.random.Generator(np.random.Philox(0)))
        candidates[f"{name}/decode"] = partial(codec.decode, wire, down)
        megabytes[name] = 4e-6 * layout.num_params * len(upload)
    medians = {name: statistics.median(seconds) for name, seconds in interleaved(candidates).items()}
    return {
        name: {way: round(size / medians[f"{name}/{way}"]) for way in ("encode", "decode")}
        for name, size in megabytes.items()
    }


def _trees(size: int, moments: bool) -> tuple[Tree, Tree]:
    rng = np.random.default_rng(1)
    down = {name: torch.zeros(size) for name in ("x", "m", "v")}
    down["x"] = torch.from_numpy(rng.standard_normal(size, np.float32))
    upload = {"y": down["x"] + 1e-3 * torch.from_numpy(rng.standard_normal(size, np.float32))}
    if moments:
        signs = {"m": rng.choice(np.array([-1, 1], np.float32), size), "v": np.float32(1)}
        scale = rng.uniform(-35, 5, size).astype(np.float32)
        upload |= {name: torch.from_numpy(np.float32(10) ** scale * sign) for name, sign in signs.items()}
    return upload, down


def _layout(shapes: tuple[tuple[int, ...], ...]) -> Layout:
    entries: list[Entry] = []
    for number, shape in enumerate(shapes):
        start = entries[-1].stop if entries else 0
        entries.append(Entry(f"t{number}", start, start + prod(shape), shape, False))
    return Layout(tuple(entries))


if __name__ == "__main__":
    import json

    print(json.dumps(run(), indent=2))
